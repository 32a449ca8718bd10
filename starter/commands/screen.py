"""What a person sees: tables that fit the terminal, colours only on one. And JSON for scripts."""

import json
import os
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from starter.commands.moved import doing, percent
from starter.commands.words import ago, ahead, moment, size

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Workspace = dict[str, Any]
"""As the API tells it."""

COLOURS = {
    "RUNNING": "green",
    "STANDBY": "cyan",
    "ARCHIVED": "blue",
    "PENDING": "yellow",
    "ERROR": "bold red",
    "DELETING": "magenta",
    "SUCCEEDED": "green",
    "FAILED": "bold red",
}
# What is piped into another program is not cut off.
_UNLIMITED = 10_000


@cache
def out() -> "Console":
    return _console(stderr=False)


@cache
def err() -> "Console":
    return _console(stderr=True)


def say(text: "str | Text", *, whole: bool = False) -> None:
    """A line of the result. `whole`: never broken, so that it can be copied."""
    out().print(text, soft_wrap=whole)


def note(text: str) -> None:
    """A line beside the result."""
    err().print(text)


def print_json(body: Any) -> None:
    sys.stdout.write(json.dumps(body, indent=2, ensure_ascii=False) + "\n")


def print_json_line(body: Any) -> None:
    sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def table(*columns: str, wide: str | None = None) -> "Table":
    """`wide` is the column that gives way when the terminal is narrow."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        # What may wrap is what shrinks; its cells don't wrap by themselves (see `cell`).
        made.add_column(column, no_wrap=column != wide, overflow="ellipsis")
    return made


def fitted(least: Mapping[str, int], rows: "list[dict[str, str | Text]]", wide: str) -> "Table":
    """`least` has for each column how wide the terminal must be to have it. One that would be empty is not shown."""
    shown = [name for name, width in least.items() if out().width >= width and any(row[name] for row in rows)]
    made = table(*shown, wide=wide)
    for row in rows:
        made.add_row(*(row[name] for name in shown))
    return made


def cell(text: str, style: str = "") -> "Text":
    """For the column that gives way."""
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def put(made: "Table") -> None:
    """Another program gets it without the blanks at the ends of lines."""
    console = out()
    if console.is_terminal:
        console.print(made)
        return
    with console.capture() as captured:
        console.print(made)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def put_log(least: Mapping[str, int], rows: "list[dict[str, str | Text]]", last: str, wide: str) -> None:
    """A table; where it is too wide for the terminal, its column `last` goes below each line, and is not cut off."""
    from rich.measure import Measurement
    from rich.padding import Padding
    from rich.text import Text

    console, whole = out(), fitted(least, rows, wide=last)
    if Measurement.get(console, console.options.update(max_width=_UNLIMITED), whole).maximum <= console.width:
        put(whole)
        return
    with console.capture() as captured:
        console.print(fitted({name: width for name, width in least.items() if name != last}, rows, wide=wide))
    head, *lines = captured.get().splitlines()
    sys.stdout.write(f"{head.rstrip()}\n")
    for line, row in zip(lines, rows, strict=True):
        sys.stdout.write(f"{line.rstrip()}\n")
        if row[last] and console.width >= least[last]:
            console.print(Padding(Text(str(row[last]), style="dim"), (0, 0, 0, 2), expand=False))


def facts(pairs: "list[tuple[str, str | Text]]") -> "Table":
    """What belongs to one thing, line by line."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, value)
    return made


def state(ws: Workspace) -> "Text":
    """Where it is, and where it is going."""
    from rich.text import Text

    text = Text(ws["phase"], style=COLOURS.get(ws["phase"], ""))
    if ws["phase"] == "ERROR":
        text.append(f" {ws['error_reason'] or '(recovering)'}", style="red")
    if ws["operation"] not in {"NONE", ws["phase"]}:
        text.append(f" › {doing(ws['operation'], ws['progress'])}{percent(ws['progress'])}", style="yellow")
    elif ws["operation"] == "NONE" and ws["phase"] not in {ws["desired_state"], "ERROR", "DELETING"}:
        text.append(f" → {ws['desired_state']}", style="yellow")
    return text


def next_step(step: dict[str, Any] | None, now: datetime) -> str:
    at = moment(step["at"]) if step else None
    if step is None or at is None:
        return ""
    if step["desired_state"] is None:
        return f"is given up {ahead(at, now)} ({step['error_reason']})"
    verb = {"STANDBY": "sleeps", "ARCHIVED": "is archived"}.get(step["desired_state"], step["desired_state"])
    return f"{verb} {ahead(at, now)}"


def when(text: str | None, now: datetime) -> str:
    """For a person in a hurry and for one who wants to know exactly."""
    at = moment(text)
    if at is None:
        return "never"
    return f"{ago(at, now)} ({at.astimezone():%Y-%m-%d %H:%M:%S})"


def amount(done: int | None, total: int | None) -> str:
    if done is None:
        return ""
    return size(done) if total is None or total == done else f"{size(done)} of {size(total)}"


def short(workspace_id: str) -> str:
    return workspace_id[:8]


def _console(*, stderr: bool) -> "Console":
    from rich.console import Console

    # Names and messages are other people's: what looks like markup in them is text.
    console = Console(stderr=stderr, highlight=False, emoji=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _UNLIMITED
    return console
