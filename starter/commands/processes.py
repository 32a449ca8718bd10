"""`codehub up`, `worker`, `api`, `migrate`: what runs codehub."""

from typing import Annotated

import typer

from starter.commands.examples import examples
from starter.commands.guarded import guarded, operating


@examples(
    "codehub up",
    "CODEHUB_PORT=8001 CODEHUB_DATA=/srv/codehub codehub up",
    "DATABASE_URL=postgresql://… codehub up        PostgreSQL is yours, the rest embedded",
)
def up() -> None:
    """Run the whole system here, in the foreground, until Ctrl-C. Services that no URL names are embedded.

    Everything is kept in CODEHUB_DATA (default .codehub); CODEHUB_PORT (default 8000) is where it listens.
    """
    from starter.up import run

    with guarded() as settings:
        run(settings)


def worker(
    node: Annotated[str, typer.Option(help="Name of the Docker host that this worker serves.")] = "local",
) -> None:
    """Run a worker: workflows, operations, and the coordinator if it is elected."""
    import asyncio

    from starter.logs import configure_logs
    from worker import run_worker

    with guarded() as settings:
        configure_logs(settings)
        asyncio.run(run_worker(settings, node))


def api() -> None:
    """Run the API."""
    import asyncio

    from starter.api.server import run_api
    from starter.logs import configure_logs

    with guarded() as settings:
        configure_logs(settings)
        asyncio.run(run_api(settings))


def migrate() -> None:
    """Bring the database's schema to this version. Safe while others run."""
    import asyncio

    from adapters.postgres.migrate import migrate as apply
    from settings import required

    with operating() as settings:
        required(settings, "database_url")
        done = asyncio.run(apply(settings.database_url or ""))
        typer.echo("\n".join(done) if done else "The schema is up to date.")
