"""One command of a build, with a log of its own."""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starter.embedded.child import Child, Folders, Process, last_lines
from starter.embedded.errors import EmbeddedError

# Tools of the system are there also where a user's PATH leaves them out.
SEARCHED = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"
TELL_SECONDS = 1.0
# How apt, npm and tar begin what they find wrong.
COMPLAINTS = ("E: ", "Err:", "npm error", "tar: ")
LAST_LINES = 30


def find(program: str) -> str | None:
    return shutil.which(program, path=SEARCHED)


@dataclass(frozen=True, kw_only=True)
class Command:
    name: str
    """Names the log, and the record by which a later build ends what a crash left running."""
    argv: tuple[str, ...]
    within: float
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    patience: float = 0
    """Seconds to come to an end when it is stopped; 0 for what may be cut off anywhere."""

    async def run(self, folders: Folders, tell: Callable[[str], None] | None = None) -> None:
        """To its end. `tell` gets the last line of its log, again and again."""
        log = folders.log(self.name)
        process = Process(self._child(), folders)
        told = asyncio.create_task(_follow(log, tell)) if tell else None
        try:
            async with asyncio.timeout(self.within):
                code = await process.wait()
        except TimeoutError:
            raise EmbeddedError(f"{self.name} took longer than {self.within:.0f} s: see {log}") from None
        finally:
            if told:
                told.cancel()
            await (process.stop(self.patience) if self.patience else process.kill())
        if code != 0:
            raise EmbeddedError(f"{self.name} failed with exit code {code}: {_complaint(log)} (see {log})")

    def _child(self) -> Child:
        program = find(self.argv[0])
        if program is None:
            raise EmbeddedError(f"{self.argv[0]} is not installed on this machine.")
        return Child(
            name=self.name,
            argv=(program, *self.argv[1:]),
            env={"PATH": SEARCHED, **self.env},
            cwd=self.cwd,
            ready=_never_asked,
            death_signal=signal.SIGTERM if self.patience else signal.SIGKILL,
        )


async def _never_asked() -> None: ...


def _complaint(log: Path) -> str:
    """The first thing it found wrong. What comes after is about cleaning up."""
    lines = last_lines(log, count=LAST_LINES).split(" | ")
    return next((line for line in lines if line.startswith(COMPLAINTS)), lines[-1])


async def _follow(log: Path, tell: Callable[[str], None]) -> None:
    while True:
        await asyncio.sleep(TELL_SECONDS)
        if line := last_lines(log, count=1):
            tell(line)
