"""`codehub rm`."""

import time
from datetime import datetime

from starter.commands.arriving import check_timeout
from starter.commands.asking import Yes, confirm
from starter.commands.examples import examples
from starter.commands.goal import Goal
from starter.commands.names import Name, Owner, find, path, titled
from starter.commands.options import AsJson, Timeout, Token, Url, Wait, reached
from starter.commands.screen import Workspace, say
from starter.commands.words import ago, moment, took


@examples(
    "codehub rm demo",
    "codehub rm demo --yes --wait",
    "codehub rm demo --owner alice",
)
def rm(
    name: Name,
    owner: Owner = None,
    yes: Yes = False,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Delete a workspace with all that is in it. Asks first, and says what will be lost."""
    with reached(url, token, as_json=as_json) as server:
        check_timeout(wait=wait, timeout=timeout)
        ws = find(server, name, owner)
        if not yes:
            confirm(
                f"{titled(ws)} ({ws['phase']}). {losses(ws, server.now)} This can't be undone.",
                f"Delete {titled(ws)}?",
                "Nothing was deleted.",
            )
        began = time.monotonic()
        server.delete(path(ws))
        if wait:
            from starter.commands.waiting import wait_for

            asked = {**ws, "desired_state": "DELETED"}
            wait_for(server, asked, Goal.of("DELETED", ws), timeout, as_json=as_json)
        if not as_json:
            ended = f"is deleted ({took(time.monotonic() - began)})" if wait else "is being deleted"
            say(f"{titled(ws)} {ended}.")


def losses(ws: Workspace, now: datetime) -> str:
    """What is gone for ever when this workspace is."""
    volume = ws["conditions"].get("storage.volume_ready", {}).get("status") == "True"
    running = " It is running: whoever works in it is thrown out." if ws["phase"] == "RUNNING" else ""
    if ws["archive_key"] and volume:
        return f"Its home and its archive will be lost.{running}"
    if ws["archive_key"]:
        return "Its home, which is archived, will be lost."
    if volume:
        return f"Its home will be lost, and there is no archive of it.{running}"
    return f"It was created {ago(moment(ws['created_at']), now)} and has no home yet."
