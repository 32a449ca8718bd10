"""How far an operation is: a bar on a terminal, now and then a line elsewhere."""

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn
from rich.text import Text

from starter.commands.moved import bytes_moved, doing, fitting, percent
from starter.commands.screen import Workspace, err, note
from starter.commands.words import size, took

LINE_SECONDS = 5.0
BAR_WIDTH = 16
# A narrower terminal has no room for one.
BAR_FROM = 50
NOT_BEGUN = "waiting for it to begin"


class Display(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, ws: Workspace, told: dict[str, Any] | None, trouble: str | None = None) -> None:
        """`told` is the latest `workspace_progress`; without one, the workspace's own progress has to do. `trouble` is
        what the last attempt had to say, or why nothing is heard."""

    def end(self, *, well: bool) -> None:
        """Nothing more comes."""


def display(*, as_json: bool) -> Display:
    return Bars() if err().is_terminal and not as_json else Lines()


class Lines:
    """One line when a step begins, and one every few seconds while bytes move."""

    def __init__(self) -> None:
        self._moving = _Moving("NONE")
        self._told_at = 0.0
        self._failures = 0
        self._trouble: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return

    def show(self, ws: Workspace, told: dict[str, Any] | None, trouble: str | None = None) -> None:
        operation, now = ws["operation"], time.monotonic()
        new, self._trouble = trouble if trouble != self._trouble else None, trouble
        if operation != self._moving.operation or ws["error_count"] > self._failures:
            self._moving, self._told_at, self._failures = _Moving(operation), now, ws["error_count"]
            if operation != "NONE":
                note(f"{ws['name']}: {step(ws)}{f': {trouble}' if trouble else ''}")
            return
        if new:
            note(f"{ws['name']}: {new}")
        moved = self._moving.look(ws, told)
        if moved and now - self._told_at >= LINE_SECONDS:
            self._told_at = now
            note(f"{ws['name']}: {doing(operation, moved)}{percent(moved)}, {bytes_moved(moved)}")

    def end(self, *, well: bool) -> None:
        del well


class Bars:
    """A line for each step, and only a line: a bar while bytes move, and in the end the time that it took."""

    def __init__(self) -> None:
        self._bar = BAR_WIDTH if err().width >= BAR_FROM else 0
        self._progress = Progress(
            _Mark(),
            TextColumn("{task.description}", markup=False),
            _Clock(),
            _Bar(bar_width=self._bar),
            TextColumn("{task.fields[moved]}", markup=False),
            TextColumn("{task.fields[trouble]}", style="yellow", markup=False),
            console=err(),
        )
        self._task: TaskID | None = None
        self._step = ""
        self._moving = _Moving("")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, ws: Workspace, told: dict[str, Any] | None, trouble: str | None = None) -> None:
        operation = ws["operation"]
        if operation != self._moving.operation or self._task is None:
            self._finish(well=True)
            self._moving = _Moving(operation)
            self._task = self._progress.add_task("", total=None, moved="", trouble="", mark="")
        moved, self._step = self._moving.look(ws, told), step(ws)
        label = NOT_BEGUN if operation == "NONE" else step(ws, moved)
        # Beside the mark, the clock, the bar, and a blank after each.
        room = err().width - len(label) - self._bar - 13
        self._progress.update(self._task, description=label, trouble=_cut(trouble or "", room + self._bar), moved="")
        if moved and not trouble:
            # One more than there are: a task that is complete stops its clock, and more may come (see Stage).
            total = moved["bytes_total"] and moved["bytes_total"] + 1
            self._progress.update(self._task, moved=fitting(moved, room), completed=moved["bytes_done"], total=total)

    def end(self, *, well: bool) -> None:
        self._finish(well=well)

    def _finish(self, *, well: bool) -> None:
        if self._task is None:
            return
        if self._moving.operation == "NONE":
            # It was no step of the workspace's.
            self._progress.remove_task(self._task)
        else:
            # Who has succeeded has moved all of it, also what was not told in time.
            done = (self._moving.total if well else None) or self._moving.done
            moved, mark = size(done) if done else "", "[green]✓[/]" if well else "[red]✗[/]"
            self._progress.update(
                self._task, total=1, completed=1, mark=mark, moved=moved, trouble="", description=self._step
            )
        self._task = None


@dataclass(slots=True)
class _Moving:
    """The bytes of one operation."""

    operation: str
    done: int = 0
    """The most that was told so far: each stage begins at nothing."""
    total: int | None = None

    def look(self, ws: Workspace, told: dict[str, Any] | None) -> dict[str, Any] | None:
        """None as long as none has moved."""
        moved: dict[str, Any] | None = told if told and told.get("operation") == self.operation else ws["progress"]
        if not moved or not (moved["bytes_done"] or self.done):
            return None
        self.done, self.total = max(self.done, moved["bytes_done"]), moved["bytes_total"]
        return moved


def _cut(text: str, room: int) -> str:
    """To what fits: a line that wraps would leave its rest on the screen."""
    line = " ".join(text.split())
    return line if len(line) <= room else f"{line[: max(0, room - 1)]}…"


class _Mark(SpinnerColumn):
    def render(self, task: Task) -> Any:
        return Text.from_markup(task.fields["mark"]) if task.finished else super().render(task)


class _Bar(BarColumn):
    """For bytes; what has none is told by its clock."""

    def render(self, task: Task) -> Any:
        return super().render(task) if task.fields["moved"] and not task.finished else Text("")


class _Clock(ProgressColumn):
    def render(self, task: Task) -> Text:
        seconds = task.finished_time if task.finished else task.elapsed
        return Text(took(seconds or 0.0), style="dim")


def step(ws: Workspace, moved: dict[str, Any] | None = None) -> str:
    """The operation, and how often it failed so far: whether there is another attempt is not known here."""
    failed, operation = ws["error_count"], doing(ws["operation"], moved)
    return f"{operation}, failed {failed} time{'s' * (failed > 1)}" if failed else operation
