"""`codehub up`, `worker`, `api`, `migrate`, `image`: what runs codehub."""

import os
from typing import Annotated

import typer

from starter.commands.examples import examples
from starter.commands.guarded import guarded, operating
from starter.commands.screen import note


@examples(
    "codehub up",
    "CODEHUB_PORT=8001 CODEHUB_DATA=/srv/codehub codehub up",
    "DATABASE_URL=postgresql://… codehub up        PostgreSQL is yours, the rest embedded",
)
def up() -> None:
    """Run the whole system here, in the foreground, until Ctrl-C. Services that no URL names are embedded.

    Everything is kept in CODEHUB_DATA (default .codehub); CODEHUB_PORT (default 8000) is where it listens.
    """
    from settings import without_effect
    from starter.up import run

    with guarded() as settings:
        for name, reason in without_effect(os.environ).items():
            note(f"{name} has no effect: {reason}.")
        run(settings)


def worker(
    node: Annotated[str, typer.Option(help="Name of the Docker host that this worker serves.")] = "local",
    verify: Annotated[
        bool, typer.Option("--verify", help="Run nothing: say which live histories this version can't go on with.")
    ] = False,
) -> None:
    """Run a worker: workflows and operations.

    And the coordinator, if this one is elected.
    """
    import asyncio

    from adapters.telemetry.tracing import configure_tracing
    from starter.commands.replaying import replay_live
    from starter.logs import configure_logs, tell_settings_without_effect
    from worker import run_worker

    if verify:
        with operating() as settings:
            asyncio.run(replay_live(settings))
        return
    with guarded() as settings:
        configure_logs(settings)
        tell_settings_without_effect(os.environ)
        configure_tracing(settings.otel_exporter_otlp_endpoint, "worker")
        asyncio.run(run_worker(settings, node))


def api() -> None:
    """Run the API, the dashboard and the proxy, on one port."""
    from adapters.telemetry.tracing import configure_tracing
    from starter.api.server import run
    from starter.logs import configure_logs, tell_settings_without_effect

    with guarded() as settings:
        configure_logs(settings)
        tell_settings_without_effect(os.environ)
        configure_tracing(settings.otel_exporter_otlp_endpoint, "api")
        run(settings)


def migrate() -> None:
    """Bring the database's schema to this version. Safe while others run."""
    import asyncio

    from adapters.postgres.migrate import migrate as apply
    from settings import required

    with operating() as settings:
        required(settings, "database_url")
        done = asyncio.run(apply(settings.database_url or ""))
        typer.echo("\n".join(done) if done else "The schema is up to date.")


@examples("codehub image", "DOCKER_HOST=tcp://10.0.0.12:2376 codehub image", "WORKSPACE_IMAGE=mine:1 codehub image")
def image() -> None:
    """Have the Docker engine hold the image of new workspaces (WORKSPACE_IMAGE).

    The one that is built in is code-server, pulled and set up for codehub; where no registry answers it is built on
    this machine. Another one is pulled as it is. Once per Docker host; `codehub up` does it by itself.
    """
    import asyncio

    from starter.embedded.progress import ConsoleProgress
    from starter.ide.image import ensure_image

    with operating(on_services=False) as settings:
        progress = ConsoleProgress()
        try:
            asyncio.run(ensure_image(settings.docker_host, settings.workspace_image, progress))
        finally:
            progress.close()
        typer.echo(f"The engine has {settings.workspace_image}.")
