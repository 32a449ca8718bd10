"""The `codehub` command."""

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from settings import Settings, SettingsError, load_settings

app = typer.Typer(
    help="Workspaces that follow a declared state: RUNNING, STANDBY, ARCHIVED.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.command()
def up() -> None:
    """Run the whole system here, in the foreground, until Ctrl-C. Services that no URL names are embedded."""
    from starter.up import run

    _guarded(run)


@app.command()
def worker(
    node: Annotated[str, typer.Option(help="Name of the Docker host that this worker serves.")] = "local",
) -> None:
    """Run a worker: workflows, operations, and the coordinator if it is elected."""
    from starter.logs import configure_logs
    from worker import run_worker

    def run(settings: Settings) -> None:
        configure_logs(settings)
        asyncio.run(run_worker(settings, node))

    _guarded(run)


@app.command()
def api() -> None:
    """Run the API."""
    from starter.api.server import run_api
    from starter.logs import configure_logs

    def run(settings: Settings) -> None:
        configure_logs(settings)
        asyncio.run(run_api(settings))

    _guarded(run)


@app.command()
def migrate() -> None:
    """Bring the database's schema to this version. Safe while others run."""
    from adapters.postgres.migrate import migrate as apply
    from settings import required

    def run(settings: Settings) -> None:
        required(settings, "database_url")
        done = asyncio.run(apply(settings.database_url or ""))
        typer.echo("\n".join(done) if done else "The schema is up to date.")

    _guarded(run)


def _guarded(command: Callable[[Settings], None]) -> None:
    """Errors that a person can do something about are one line, without a traceback."""
    from adapters.postgres.database import DatabaseUnavailable
    from adapters.postgres.migrate import MigrationError
    from starter.embedded.errors import EmbeddedError

    try:
        command(load_settings(os.environ))
    except (SettingsError, EmbeddedError, MigrationError, DatabaseUnavailable) as error:
        typer.echo(f"codehub: {error}", err=True)
        sys.exit(1)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
