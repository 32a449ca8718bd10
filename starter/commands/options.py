"""Options that many commands share."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, TypeVar

import typer

from starter.commands.failure import CommandFailed, Exit
from starter.commands.kept_logins import DEFAULT_URL, KeptLogins, normal_url
from starter.commands.running_stack import running_url
from starter.commands.server import ANSWER_SECONDS, Server
from starter.commands.words import parse_seconds, parse_ttl

Kind = TypeVar("Kind", bound=StrEnum)

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="CODEHUB_URL",
        metavar="URL",
        help=f"The server. Unset: that of the last login, else the codehub up that runs here, else {DEFAULT_URL}.",
    ),
]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="CODEHUB_TOKEN", metavar="TOKEN", help="An API token. Unset: the kept login's."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the API's JSON, for scripts.")]
Wait = Annotated[bool, typer.Option("--wait", "-w", help="Follow it to its end.")]


def one_of(kind: type[Kind]) -> Callable[[str | Kind], Kind]:
    """A parser for its values, in whatever case they are typed."""

    def parse(typed: str | Kind) -> Kind:
        try:
            return kind(typed.upper())
        except ValueError as error:
            known = ", ".join(one.lower() for one in kind)
            raise typer.BadParameter(f"{str(typed)!r} is none of {known}") from error

    return parse


def completing(kind: type[StrEnum]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [one.lower() for one in kind if one.lower().startswith(incomplete.lower())]

    return complete


def _seconds(typed: str | float) -> float:
    try:
        return parse_seconds(str(typed))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", parser=_seconds, metavar="TIME", help="With --wait: at most this long, such as 90s or 10m."
    ),
]


def ttl_seconds(typed: str | None, option: str) -> int | None:
    if typed is None:
        return None
    try:
        return parse_ttl(typed)
    except ValueError as error:
        raise CommandFailed(f"{option}: {error}, or never, or default.", Exit.USAGE) from error


StandbyTtl = Annotated[
    str | None,
    typer.Option(
        "--standby-ttl", metavar="TIME", help="Asleep after this long without use: 15m, 2h, never, or default."
    ),
]
ArchiveTtl = Annotated[
    str | None,
    typer.Option("--archive-ttl", metavar="TIME", help="Archived after this long asleep: 12h, 7d, never, or default."),
]


@contextmanager
def reached(
    url: str | None, token: str | None, *, as_json: bool = False, patience: float = ANSWER_SECONDS
) -> Iterator[Server]:
    """The server that is meant, as its user. What fails inside is told in the way that was asked for."""
    try:
        with server(url, token, patience) as found:
            yield found
    except CommandFailed as error:
        error.as_json = as_json
        raise


def server(url: str | None, token: str | None, patience: float = ANSWER_SECONDS) -> Server:
    kept = KeptLogins()
    address = chosen_url(url, kept)
    login = None if token else kept.get(address)
    secret = (token or (login.token if login else "")).strip()
    if not secret:
        raise CommandFailed(f"Not logged in at {address}: codehub login --url {address}", Exit.NOT_LOGGED_IN)
    if not (secret.isascii() and secret.isprintable()):
        raise CommandFailed("The token is not one: it has characters that no token has.", Exit.USAGE)
    return Server(address, secret, patience=patience)


def chosen_url(url: str | None, kept: KeptLogins) -> str:
    return normal_url(url or kept.latest_url or running_url(os.environ) or DEFAULT_URL)
