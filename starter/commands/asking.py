"""Asking a person before something can't be undone."""

import sys
from typing import Annotated

import typer

from starter.commands.failure import CommandFailed, Exit
from starter.commands.screen import note

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def confirm(told: str, question: str, declined: str) -> None:
    """Goes on when the answer is yes. A script has nobody to answer: it has to say so by itself."""
    if not sys.stdin.isatty():
        raise CommandFailed(f"{told} There is nobody to ask: --yes says that you mean it.", Exit.USAGE)
    note(told)
    if not typer.confirm(question, err=True):
        raise CommandFailed(declined)
