"""`codehub worker --verify`: before an upgrade, which workspaces this version could not go on with."""

import time

import typer
from temporalio.service import RPCError

from settings import Settings, required
from starter.commands.failure import CommandFailed, Exit
from starter.commands.screen import say
from starter.commands.words import took
from starter.temporal import temporal_address
from workflows.client import connect
from workflows.verify import replay_running


async def replay_live(settings: Settings) -> None:
    """Exit 1 if a history breaks. Reads only: no workflow notices."""
    required(settings, "temporal_address")
    began, seen, broken = time.monotonic(), 0, 0
    try:
        client = await connect(temporal_address(settings))
        async for one in replay_running(client):
            seen += 1
            if one.error is not None:
                broken += 1
                say(f"✗ {one.workflow_id} ({one.workflow_type}, {one.events} events): {one.error}")
    except (RPCError, RuntimeError) as error:
        raise CommandFailed(
            f"Temporal at {settings.temporal_address} could not be asked ({error}): nothing is verified.",
            Exit.UNREACHABLE,
        ) from error
    say(
        f"{seen - broken} of {seen} live histories in {client.namespace} replay with this version"
        f" ({took(time.monotonic() - began)})."
    )
    if broken:
        say("Keep the workers of the former version running: this one can't go on with the others.")
        raise typer.Exit(1)
