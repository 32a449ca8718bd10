"""`codehub open`."""

import os
import sys
from typing import Annotated

import typer

from starter.commands.examples import examples
from starter.commands.names import Name, called, find
from starter.commands.options import AsJson, Token, Url, reached
from starter.commands.screen import note, print_json, say

_HINTS = {
    "STANDBY": "It is asleep: opening it wakes it up.",
    "ARCHIVED": "It is archived: its page offers to restore it (or codehub start {name}).",
    "PENDING": "It was never started: codehub start {name}",
    "ERROR": "It is in ERROR: codehub explain {name}",
    "DELETING": "It is being deleted.",
}


@examples(
    "codehub open demo",
    "codehub open demo --print",
)
def open_(
    name: Name,
    only_print: Annotated[bool, typer.Option("--print", help="Only print the address.")] = False,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Open a workspace in the browser, and print its address."""
    with reached(url, token, as_json=as_json) as server:
        ws = find(server, name)
        if as_json:
            print_json(ws)
            return
        address = f"{server.url}/w/{ws['id']}/"
        say(address, whole=True)
        if ws["phase"] in _HINTS:
            note(_HINTS[ws["phase"]].format(name=called(ws)))
        # A script takes the address from here.
        if not only_print and sys.stdout.isatty() and not _opened(address):
            note("No browser here: open this address.")


def _opened(address: str) -> bool:
    import webbrowser

    return _has_browser() and webbrowser.open(address)


def _has_browser() -> bool:
    """One with windows: a browser of the terminal would take it over."""
    if sys.platform == "darwin" or "BROWSER" in os.environ:
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
