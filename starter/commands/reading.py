"""How far `codehub verify` is: a bar for the archive that is being read, on a terminal only."""

from types import TracebackType
from typing import Self

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from starter.commands.screen import err, say


class Reading:
    def __init__(self, count: int, *, quiet: bool) -> None:
        self._count = count
        self._number = 0
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=err(),
            transient=True,
            disable=quiet or not err().is_terminal or not count,
        )
        self._task = self._progress.add_task("", total=None)

    def begin(self, title: str) -> None:
        self._number += 1
        self._progress.reset(self._task, description=f"{self._number}/{self._count} {title}", total=None)

    def expect(self, count: int) -> None:
        self._progress.update(self._task, total=count, completed=0)

    def moved(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def tell(self, line: str) -> None:
        """A result, on standard output: the bar gives way to it."""
        self._progress.stop()
        say(line)
        self._progress.start()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
