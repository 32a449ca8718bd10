"""What is told once the server has taken a wish: at once, or with --wait at its end."""

import time

from starter.commands.failure import CommandFailed, Exit
from starter.commands.goal import Goal
from starter.commands.names import called, titled
from starter.commands.screen import Workspace, print_json, say
from starter.commands.server import Server
from starter.commands.words import took


def tell(
    server: Server,
    ws: Workspace,
    phase: str,
    *,
    wait: bool,
    timeout: float | None,
    as_json: bool,
    created: bool = False,
) -> None:
    """`ws` is what the server answered to the wish for `phase`."""
    check_timeout(wait=wait, timeout=timeout)
    began = time.monotonic()
    if wait:
        # Brings the terminal's machinery along, which other commands do without.
        from starter.commands.waiting import wait_for

        ws = wait_for(server, ws, Goal.of(phase, ws), timeout, as_json=as_json) or ws
    if as_json:
        print_json(ws)
    elif ws["phase"] == phase and ws["operation"] == "NONE":
        say(f"{titled(ws)} is {phase}{f' ({took(time.monotonic() - began)})' if wait else ''}.")
        if phase == "RUNNING" and "owner" not in ws:
            say(f"{server.url}/w/{ws['id']}/", whole=True)
    else:
        made = "is created, " if created else f"is {ws['phase']}, "
        # Live events tell everybody of their own.
        follow = f"codehub show {called(ws)}" if "owner" in ws else "codehub events"
        say(f"{titled(ws)} {made}on its way to {phase}. To follow it: {follow}")


def check_timeout(*, wait: bool, timeout: float | None) -> None:
    if timeout is not None and not wait:
        raise CommandFailed("--timeout is about --wait: give both.", Exit.USAGE)
