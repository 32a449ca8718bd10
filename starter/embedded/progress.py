"""What a person sees while services start."""

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


# Mark, name, time, and what is between them.
BESIDE_TEXT = 1 + 12 + 7 + 3


class Progress(Protocol):
    def step(self, name: str, text: str) -> None:
        """`name` is now at `text`."""

    def done(self, name: str, seconds: float) -> None:
        """`name` is ready, `seconds` after its first step."""

    def close(self) -> None:
        """Nothing more will be shown."""


class NoProgress:
    def step(self, name: str, text: str) -> None: ...

    def done(self, name: str, seconds: float) -> None: ...

    def close(self) -> None: ...


class ConsoleProgress:
    """On a terminal one live line per service; elsewhere one plain line per step, so that logs read well."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.console import Console
        from rich.progress import Progress as Bars
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.table import Column

        self._console = console or Console()
        self._tasks: dict[str, TaskID] = {}
        self._last: dict[str, str] = {}
        self._bars: Bars | None = None
        if self._console.is_terminal:
            # Else a long text would take the room of all the others.
            room = max(20, self._console.width - BESIDE_TEXT)
            self._bars = Bars(
                SpinnerColumn(finished_text="[green]✓[/]"),
                TextColumn("{task.fields[name]:<12}", markup=False),
                TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True, max_width=room)),
                TimeElapsedColumn(),
                console=self._console,
            )
            self._bars.start()

    def step(self, name: str, text: str) -> None:
        if self._bars is None:
            if self._last.get(name) != text:
                self._plain(f"{name}: {text}")
            self._last[name] = text
        elif name in self._tasks:
            self._bars.update(self._tasks[name], description=text)
        else:
            self._tasks[name] = self._bars.add_task(text, total=1, name=name)

    def done(self, name: str, seconds: float) -> None:
        if self._bars is None:
            self._plain(f"{name}: ready in {seconds:.1f} s")
            return
        self.step(name, "ready")
        self._bars.update(self._tasks[name], completed=1)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _plain(self, line: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {line}", markup=False, highlight=False, soft_wrap=True)
