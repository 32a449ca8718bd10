"""A directory as a tar stream, read by `tar` itself."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from domain.errors import ActionFailed

_CHUNK = 1024 * 1024
_LAST_WORDS = 500
_MEASURED_AFTER = 0.3
"""Seconds. Nobody needs to know how much there is of what is over by then, and to look costs as much as to read it."""
KEPT_ATTRIBUTES = ("user.*", "system.posix_acl_*", "security.capability")
"""What belongs to a file. Not what the machine that it was on thought of it (security.selinux, trusted.*). ACLs as
attributes, because the engine can extract these, too."""


class ProcessTar:
    """`adapters.homes.HomeStream`. A file that changes while it is read is a failure: nobody should use the home."""

    def __init__(self, directory: Path, top: str) -> None:
        self.total: int | None = None
        self.sockets = 0
        self._words: list[str] = []
        self._over = threading.Event()
        self._du: subprocess.Popen[bytes] | None = None
        self._tar = subprocess.Popen(
            [
                "tar",
                "--create",
                "--format=posix",
                "--pax-option=delete=atime,delete=ctime",
                "--numeric-owner",
                "--sparse",
                "--xattrs",
                *(f"--xattrs-include={kept}" for kept in KEPT_ATTRIBUTES),
                f"--transform=flags=rhS;s,^[.],{top},",
                f"--directory={directory}",
                ".",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "LC_ALL": "C"},
            # It goes on while what it gave is compressed.
            pipesize=_CHUNK,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._measuring = threading.Thread(target=self._measure, args=(directory,), daemon=True)
        self._measuring.start()

    def __iter__(self) -> Iterator[bytes]:
        assert self._tar.stdout is not None  # noqa: S101 - for the type checker
        while chunk := self._tar.stdout.read(_CHUNK):
            yield chunk
        code = self._tar.wait()
        self._listener.join()
        if code != 0:
            # It names files.
            said = " ".join(self._words)[-_LAST_WORDS:]
            raise ActionFailed(f"the home can't be read: {said or f'tar ended with {code}'}", said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Blocks until tar has ended."""
        self._over.set()
        if self._du is not None:
            self._du.kill()
        self._tar.kill()
        self._tar.wait()
        self._listener.join()
        for stream in (self._tar.stdout, self._tar.stderr):
            if stream is not None:
                stream.close()

    def _listen(self) -> None:
        assert self._tar.stderr is not None  # noqa: S101 - for the type checker
        for line in self._tar.stderr:
            text = line.decode(errors="replace").strip()
            if text.endswith("socket ignored"):
                self.sockets += 1
            else:
                self._words.append(text)
                del self._words[:-5]

    def _measure(self, directory: Path) -> None:
        """For the progress only; it may come late, or not at all."""
        if self._over.wait(_MEASURED_AFTER):
            return
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._du = subprocess.Popen(
                ["du", "-s", "--block-size=1", "--", str(directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            if self._over.is_set():
                # Whoever closed this may have looked for it a moment too early.
                self._du.kill()
            self.total = int(self._du.communicate()[0].split()[0])
