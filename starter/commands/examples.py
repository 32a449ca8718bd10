"""Examples in a command's --help."""

import inspect
from collections.abc import Callable
from typing import TypeVar

Command = TypeVar("Command", bound=Callable[..., None])


def examples(*lines: str) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        # \b keeps the lines as they are.
        listed = "\n".join(f"  {line}" for line in lines)
        command.__doc__ = f"{inspect.cleandoc(command.__doc__ or '')}\n\n\b\nExamples:\n{listed}"
        return command

    return add
