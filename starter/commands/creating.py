"""`codehub create`, and what can be changed about a workspace later: `codehub rename`, `codehub set`."""

from enum import StrEnum
from typing import Annotated, Any
from uuid import uuid4

import typer

from starter.commands.arriving import tell
from starter.commands.examples import examples
from starter.commands.failure import CommandFailed, Exit
from starter.commands.names import Name, find
from starter.commands.options import (
    ArchiveTtl,
    AsJson,
    StandbyTtl,
    Timeout,
    Token,
    Url,
    Wait,
    completing,
    one_of,
    reached,
    ttl_seconds,
)
from starter.commands.refusals import with_context
from starter.commands.screen import print_json, say
from starter.commands.server import Server


class Wanted(StrEnum):
    RUNNING = "RUNNING"
    STANDBY = "STANDBY"
    ARCHIVED = "ARCHIVED"


Description = Annotated[str | None, typer.Option("--description", help="What it is for.")]


@examples(
    "codehub create demo --wait",
    "codehub create demo --image registry.example.org/team/ide:1.2",
    "codehub create night --standby-ttl never --archive-ttl 7d",
)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the new workspace.")],
    image: Annotated[
        str | None, typer.Option("--image", metavar="IMAGE", help="Its image. Unset: the installation's.")
    ] = None,
    description: Description = None,
    standby_ttl: StandbyTtl = None,
    archive_ttl: ArchiveTtl = None,
    state: Annotated[
        Wanted,
        typer.Option(
            "--state",
            parser=one_of(Wanted),
            autocompletion=completing(Wanted),
            metavar="running|standby|archived",
            help="Where it should be.",
        ),
    ] = Wanted.RUNNING,
    wait: Wait = False,
    timeout: Timeout = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Create a workspace; it starts unless --state says otherwise."""
    body: dict[str, Any] = {"name": name, "desired_state": state.value}
    body |= {"image_ref": image} if image is not None else {}
    body |= {"description": description} if description is not None else {}
    with reached(url, token, as_json=as_json) as server:
        body |= _ttls(standby_ttl, archive_ttl)
        # With a key of its own, asking again after a lost answer makes no second one.
        try:
            ws = server.post("/api/v1/workspaces", body, key=str(uuid4()))
        except CommandFailed as error:
            raise with_context(server, error) from error
        tell(server, ws, state.value, wait=wait, timeout=timeout, as_json=as_json, created=True)


@examples(
    "codehub rename demo prototype",
)
def rename(
    name: Name,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")],
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Give a workspace another name. Its id, and so its address, stay."""
    with reached(url, token, as_json=as_json) as server:
        _change(server, name, {"name": new}, as_json=as_json)


@examples(
    'codehub set demo --memo "try the new parser"',
    "codehub set demo --standby-ttl 2h --archive-ttl default",
)
def set_(
    name: Name,
    memo: Annotated[str | None, typer.Option("--memo", help="A note to yourself.")] = None,
    description: Description = None,
    standby_ttl: StandbyTtl = None,
    archive_ttl: ArchiveTtl = None,
    url: Url = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Change its memo, its description, and when it goes to sleep."""
    texts = {"memo": memo, "description": description}
    with reached(url, token, as_json=as_json) as server:
        body: dict[str, Any] = {field: value for field, value in texts.items() if value is not None}
        body |= _ttls(standby_ttl, archive_ttl)
        if not body:
            raise CommandFailed("Nothing to set: codehub set --help shows what there is.", Exit.USAGE)
        _change(server, name, body, as_json=as_json)


def _change(server: Server, name: str, body: dict[str, Any], *, as_json: bool) -> None:
    found = find(server, name)
    ws = server.patch(f"/api/v1/workspaces/{found['id']}", body)
    if as_json:
        print_json(ws)
    elif "name" in body:
        say(f"{found['name']} is now called {ws['name']}.")
    else:
        say(f"{ws['name']} is changed.")


def _ttls(standby_ttl: str | None, archive_ttl: str | None) -> dict[str, int | None]:
    """Only what is given: `default` is a value too."""
    given = {
        "standby_ttl_seconds": ("--standby-ttl", standby_ttl),
        "archive_ttl_seconds": ("--archive-ttl", archive_ttl),
    }
    return {field: ttl_seconds(typed, option) for field, (option, typed) in given.items() if typed is not None}
