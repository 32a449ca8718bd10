"""`codehub node ls|drain|uncordon|rm`: the Docker hosts of an installation, for admins."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from starter.commands.examples import examples
from starter.commands.failure import CommandFailed, Exit
from starter.commands.options import AsJson, Timeout, Token, Url, reached
from starter.commands.screen import cell, fitted, note, print_json, put, say
from starter.commands.server import Server
from starter.commands.words import ago, moment, size

if TYPE_CHECKING:
    from rich.text import Text

Node = dict[str, Any]

NodeName = Annotated[str, typer.Argument(metavar="NODE", help="Name of the host, as in codehub node ls.")]

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_POLL_SECONDS = 1.0
_COLUMNS = {"NODE": 0, "STATE": 0, "HOMES": 0, "RUNNING": 45, "MEMORY": 55, "SEEN": 65, "ADDRESS": 75}
_COLOURS = {"ready": "green", "lost": "bold red", "draining": "yellow", "drained": "cyan", "cordoned": "cyan"}


@app.command("ls")
@examples(
    "codehub node ls",
    "codehub node ls --json | jq -r '.items[] | select(.state == \"lost\") | .name'",
)
def ls(url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """List the hosts that workspaces run on."""
    with reached(url, token, as_json=as_json) as server:
        page = server.get("/api/v1/nodes")
        if as_json:
            print_json(page)
            return
        if not page["items"]:
            say("No worker has registered a node yet: codehub worker")
            return
        rows: list[dict[str, str | Text]] = [
            {
                "NODE": node["name"],
                "STATE": _state(node),
                "HOMES": _homes(node),
                "RUNNING": str(node["running"]),
                "MEMORY": size(node["memory"]),
                "SEEN": _seen(node, server.now),
                "ADDRESS": node["address"],
            }
            for node in page["items"]
        ]
        put(fitted(_COLUMNS, rows, wide="STATE"))


@app.command("drain")
@examples(
    "codehub node drain b",
    "codehub node drain b --no-wait",
)
def drain(
    node: NodeName,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow it to its end.")] = True,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Empty a host: its homes move to others, through archive and restore; nothing new is placed on it.

    RUNNING workspaces stop for as long as that takes and run again elsewhere, STANDBY ones are STANDBY elsewhere.
    Ctrl-C ends the watching, not the drain: codehub node uncordon does.
    """
    with reached(url, token, as_json=as_json) as server:
        with _known(node):
            found = server.post(f"{_path(node)}/drain")
        if wait:
            found = _followed(server, found, timeout, quiet=as_json)
        if as_json:
            print_json(found)
            return
        left = found["drain"]["left"]
        say(f"{node} is empty." if not left else f"{node} is being drained, {left} homes to go.")


@app.command("uncordon")
@examples("codehub node uncordon b")
def uncordon(node: NodeName, url: Url = None, token: Token = None, as_json: AsJson = False) -> None:
    """Let a host take homes again. Ends a drain: what has not left stays."""
    with reached(url, token, as_json=as_json) as server:
        with _known(node):
            found = server.post(f"{_path(node)}/uncordon")
        if as_json:
            print_json(found)
            return
        say(f"{node} takes homes again.")


@app.command("rm")
@examples("codehub node rm b --accept-loss")
def rm(
    node: NodeName,
    accept_loss: Annotated[
        bool, typer.Option("--accept-loss", help="What is on it and in no archive is lost. It can't be taken back.")
    ] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Give up a host that will not come back. Its workspaces go to DataLost; recover continues from the archive."""
    with reached(url, token) as server:
        with _known(node):
            found = server.get(_path(node))
        if found["homes"] and not accept_loss:
            raise CommandFailed(
                f"{node} holds {found['homes']} homes. If it can come back, wait for it; if it can't, what is in no "
                f"archive is lost: codehub node rm {node} --accept-loss",
                Exit.CONFLICT,
            )
        with _known(node):
            server.delete(_path(node))
        say(f"{node} is removed.")


def _path(node: str) -> str:
    return f"/api/v1/nodes/{quote(node, safe='')}"


@contextmanager
def _known(node: str) -> Iterator[None]:
    try:
        yield
    except CommandFailed as error:
        if error.exit_code is not Exit.NOT_FOUND:
            raise
        raise CommandFailed(f"There is no node {node!r}: codehub node ls", Exit.NOT_FOUND, code=error.code) from error


def _followed(server: Server, node: Node, timeout: float | None, *, quiet: bool) -> Node:
    """Until it is empty; raises when it can't go on by itself."""
    deadline = time.monotonic() + timeout if timeout is not None else None
    told = ""
    while node["drain"] and node["drain"]["left"]:
        drained = node["drain"]
        line = f"{drained['homes'] - drained['left']} of {drained['homes']} homes moved, {drained['leaving']} leaving"
        if line != told and not quiet:
            note(line)
            told = line
        if drained["message"] and not drained["leaving"]:
            raise CommandFailed(
                f"{node['name']} can't be emptied: {drained['message']}. It goes on when that is mended; "
                f"codehub node uncordon {node['name']} gives it up.",
                Exit.CONFLICT,
            )
        if deadline is not None and time.monotonic() > deadline:
            raise CommandFailed(f"{node['name']} is not empty yet: {line}. It goes on.", Exit.TIMED_OUT)
        time.sleep(_POLL_SECONDS)
        node = server.get(f"/api/v1/nodes/{node['name']}")
    if node["drain"] is None:
        raise CommandFailed(f"The drain of {node['name']} was ended by somebody else (uncordon).", Exit.CONFLICT)
    return node


def _state(node: Node) -> "Text":
    drained = node["drain"]
    if node["state"] != "draining" or not drained:
        return cell(node["state"], _COLOURS[node["state"]])
    detail = f"draining, {drained['left']} left"
    return cell(f"{detail}: {drained['message']}" if drained["message"] else detail, _COLOURS["draining"])


def _homes(node: Node) -> str:
    return f"{node['homes']} of {node['capacity']}" if node["capacity"] is not None else str(node["homes"])


def _seen(node: Node, now: datetime) -> str:
    return ago(moment(node["seen_at"]), now) if node["state"] == "lost" else "now"
