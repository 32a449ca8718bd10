"""`codehub login`, `codehub logout`."""

import getpass
import os
import socket
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from starter.commands.examples import examples
from starter.commands.failure import CommandFailed, Exit
from starter.commands.kept_logins import DEFAULT_URL, KeptLogin, KeptLogins, is_local, is_private, normal_url
from starter.commands.options import AsJson, Url, chosen_url
from starter.commands.running_stack import running_url
from starter.commands.screen import note, print_json, say
from starter.commands.server import Server

ADMIN = "admin"
_LONGEST_NAME = 100


@examples(
    "codehub login",
    "codehub login --url https://codehub.example.org -u alice",
    "cat secret | codehub login -u alice --password-stdin",
)
def login(
    url: Url = None,
    username: Annotated[
        str | None, typer.Option("--username", "-u", envvar="CODEHUB_USERNAME", help="Asked for when unset.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input, for scripts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Log in, and keep an API token for the commands to come.

    Asks for what is not given. The password is asked for, or read from standard input: never an argument, which
    other users of the machine and the shell's history would see.
    """
    kept = KeptLogins()
    try:
        address = normal_url(url) if url else _ask_url(kept, from_stdin=password_stdin)
        name = username or _ask_username(address, from_stdin=password_stdin)
        if not is_private(address):
            note(f"Warning: {address} is not encrypted; whoever is on the way can read the password.")
        if not password_stdin:
            _reach(address)
        body = _log_in(address, name, _password(password_stdin), kept)
    except CommandFailed as error:
        error.as_json = as_json
        raise
    if as_json:
        print_json(body)
    else:
        say(f"Logged in at {address} as {body['user']['username']}. The token is kept in {kept.path}.")


@examples(
    "codehub logout",
    "codehub logout --url https://codehub.example.org",
)
def logout(
    url: Url = None,
    local: Annotated[
        bool, typer.Option("--local", help="Only forget the token here, for a server that is gone.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Revoke the kept API token, and forget it."""
    kept = KeptLogins()
    try:
        address = chosen_url(url, kept)
        _log_out(address, kept, local=local)
    except CommandFailed as error:
        error.as_json = as_json
        raise
    if not as_json:
        say(f"Logged out at {address}.")


def _log_out(address: str, kept: KeptLogins, *, local: bool) -> None:
    """Revoked before it is forgotten: what is forgotten can't be revoked any more."""
    login = kept.get(address)
    if login is None:
        raise CommandFailed(f"There is no login at {address} to end.", Exit.NOT_LOGGED_IN)
    if not local:
        with Server(address, login.token) as server:
            _revoke(server, login.token_id)
    kept.forget(address)


def _reach(address: str) -> None:
    """Before a person types a password for nothing. Who is asked for is not known yet, and need not be."""
    with Server(address) as server:
        try:
            server.ask("GET", "/api/v1/session")
        except CommandFailed as error:
            if error.exit_code is not Exit.NOT_LOGGED_IN:
                raise


def _log_in(address: str, username: str, password: str, kept: KeptLogins) -> Any:
    """A session, only to make a token by it. The token is kept before anything else can fail."""
    replaced = kept.get(address)
    with Server(address) as server:
        answer = server.ask("POST", "/api/v1/login", {"username": username, "password": password})
        cookie = {"Cookie": "; ".join(value.partition(";")[0] for value in answer.headers.get_all("Set-Cookie", []))}
        made = server.ask("POST", "/api/v1/tokens", {"name": _token_name()}, cookie).json
        name = answer.json["user"]["username"]
        try:
            kept.keep(address, KeptLogin(name, made["id"], made["token"]))
        except CommandFailed:
            server.ask("DELETE", f"/api/v1/tokens/{made['id']}", None, cookie)
            raise
        with suppress(CommandFailed):
            server.ask("POST", "/api/v1/logout", None, cookie)
        if replaced is not None:
            server.token = replaced.token
            with suppress(CommandFailed):
                _revoke(server, replaced.token_id)
        return answer.json


def _revoke(server: Server, token_id: str) -> None:
    """One that is revoked already, by whomever, is what was wanted."""
    try:
        server.delete(f"/api/v1/tokens/{token_id}")
    except CommandFailed as error:
        if error.exit_code not in {Exit.NOT_FOUND, Exit.NOT_LOGGED_IN}:
            raise CommandFailed(
                f"{error.message} The token is still valid; --local forgets it here only.", error.exit_code
            ) from error


def _ask_url(kept: KeptLogins, *, from_stdin: bool) -> str:
    default = running_url(os.environ) or kept.latest_url or DEFAULT_URL
    return normal_url(default if from_stdin else _ask("Server", "--url", default))


def _ask_username(address: str, *, from_stdin: bool) -> str:
    """The one who runs codehub on their own machine is its administrator."""
    if from_stdin and is_local(address):
        return ADMIN
    return _ask("Username", "--username", ADMIN if is_local(address) else _user())


def _ask(what: str, option: str, default: str) -> str:
    if not sys.stdin.isatty():
        raise CommandFailed(f"There is no terminal to ask for the {what.lower()} at: use {option}.", Exit.USAGE)
    return str(typer.prompt(what, default=default, err=True))


def _password(from_stdin: bool) -> str:
    if from_stdin:
        password = sys.stdin.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        password = getpass.getpass("Password: ")
    else:
        raise CommandFailed("There is no terminal to ask for the password at: use --password-stdin.", Exit.USAGE)
    if not password:
        raise CommandFailed("The password is empty.", Exit.USAGE)
    return password


def _token_name() -> str:
    """So that a person who looks through their tokens knows which is which."""
    where = f"codehub CLI, {_user()}@{socket.gethostname()}"
    return "".join(letter if letter.isprintable() else "?" for letter in where)[:_LONGEST_NAME].strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
