"""The `codehub` command: registers what is in `starter.commands`."""

import json
import shutil
import sys
import textwrap
from collections.abc import Callable

import typer

from starter.commands.account import login, logout
from starter.commands.browser import open_
from starter.commands.collecting import gc
from starter.commands.creating import create, rename, set_
from starter.commands.doctor import doctor
from starter.commands.failure import EXIT_CODES, CommandFailed, Exit
from starter.commands.grouped import Grouped
from starter.commands.history import explain, log
from starter.commands.listing import ls, show
from starter.commands.live import events
from starter.commands.nodes import app as node
from starter.commands.processes import api, image, migrate, up, worker
from starter.commands.recovering import recover
from starter.commands.removing import rm
from starter.commands.steering import archive, start, stop
from starter.commands.verifying import verify

app = typer.Typer(
    cls=Grouped,
    help="""Workspaces that follow a declared state: RUNNING, STANDBY, ARCHIVED.

    \b
    The first minutes:
      codehub up                     the whole system, here
      codehub login                  in another terminal
      codehub create demo --wait
      codehub open demo
    """,
    epilog=EXIT_CODES,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Workspaces": {
        "ls": ls,
        "create": create,
        "open": open_,
        "start": start,
        "stop": stop,
        "archive": archive,
        "rm": rm,
        "recover": recover,
        "show": show,
        "explain": explain,
        "log": log,
        "events": events,
        "rename": rename,
        "set": set_,
    },
    "Account": {"login": login, "logout": logout},
    "Running codehub": {"up": up, "worker": worker, "api": api, "migrate": migrate, "image": image},
    "Looking after it": {"doctor": doctor, "gc": gc, "verify": verify},
}

for heading, commands in COMMANDS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=heading)(command)
app.add_typer(node, name="node", help="The hosts of an installation: ls, drain, uncordon, rm.", rich_help_panel=heading)


def main() -> None:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that can't show a sign gets another one, not a traceback.
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app()
    except CommandFailed as error:
        typer.echo(json.dumps(error.body) if error.as_json else _wrapped(f"codehub: {error.message}"), err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        # A second Ctrl-C, while the first one was being obeyed.
        sys.exit(Exit.INTERRUPTED)


def _wrapped(text: str) -> str:
    """At the words, on a terminal; a program gets one line."""
    if not sys.stderr.isatty():
        return text
    return textwrap.fill(text, shutil.get_terminal_size().columns, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    main()
