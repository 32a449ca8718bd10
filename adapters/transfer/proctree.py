"""A tar stream into a directory, extracted by `tar` itself, which can reach nothing else.

It runs in a mount namespace of its own, in a root that holds the directory, the system's programs for reading, and
nothing to leave it by: no /proc, no devices, no other file of the machine. What is in the stream can't lead out,
whatever it is. Holes stay holes, times of any year come back, and small files take half the work that they take an
engine.
"""

import contextlib
import os
import shutil
import subprocess
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from adapters.transfer.proctar import KEPT_ATTRIBUTES
from domain.errors import ActionFailed

_PROGRAMS = ("sh", "unshare", "mount", "chroot", "tar")
_ROOT = "/tmp"  # noqa: S108 - covered by the new root, for the process alone
_LAST_WORDS = 500
_AHEAD = 1024 * 1024
# The directory is opened again inside, because a mount can't be taken along from outside; that it is still the same
# one is checked, and "." stays it from then on. All mounts are seen by this process alone, and gone with it.
_ENTER = r"""
set -e
directory=$1 same=$2 root=$3 top=$4
shift 4
cd "$directory"
[ "$(stat -c %d:%i .)" = "$same" ]
mount -t tmpfs -o size=64k,mode=755,nosuid,nodev none "$root"
mkdir "$root/$top"
mount -c --bind . "$root/$top"
mount -o remount,bind,nosuid,nodev,noexec "$root/$top"
for each in usr bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$each" ]; then
        cp -P "/$each" "$root/$each"
    elif [ -d "/$each" ]; then
        mkdir "$root/$each"
        mount --bind "/$each" "$root/$each"
        mount -o remount,bind,ro,nosuid,nodev "$root/$each"
    fi
done
mount -o remount,ro,nosuid,nodev "$root"
cd "$root"
case "$(chroot . tar --version)" in *GNU*) ;; *) exit 1 ;; esac
echo ready
exec chroot . tar --extract --file=- --directory=/ --preserve-permissions --same-owner --numeric-owner \
    --delay-directory-restore --xattrs "$@" --warning=no-timestamp --warning=no-unknown-keyword
"""


class CantEnter(Exception):
    """Not allowed, or the machine lacks something: somebody else has to extract."""


class ProcessTree:
    """`adapters.homes.HomeSink`, without the loop. Open, it holds the directory that had the path then: one that gets
    its place later is out of its reach."""

    def __init__(self, directory: Path, top: str) -> None:
        if os.geteuid() != 0 or any(shutil.which(program) is None for program in _PROGRAMS):
            raise CantEnter("it takes root, unshare, mount, chroot and tar")
        info = directory.stat()
        self._words: list[str] = []
        self._tar = subprocess.Popen(
            [
                *("unshare", "--mount", "--propagation=private"),
                *("sh", "-c", _ENTER, "sh", str(directory), f"{info.st_dev}:{info.st_ino}", _ROOT, top),
                *(f"--xattrs-include={kept}" for kept in KEPT_ATTRIBUTES),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
            # It goes on while the next bytes are fetched.
            pipesize=_AHEAD,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()
        assert self._tar.stdout is not None  # noqa: S101 - for the type checker
        if self._tar.stdout.readline() != b"ready\n":
            self.close()
            raise CantEnter(self._said() or "no mount namespace")

    def extract(self, tar: Iterable[bytes]) -> None:
        """Blocks. What `tar` raises goes through; what is extracted until then stays, and is no home."""
        for chunk in tar:
            if not self._took(chunk):
                break
        else:
            self._took(b"", last=True)
        code = self._tar.wait()
        self._listener.join()
        if code != 0:
            # It names files.
            said = self._said()
            raise ActionFailed(f"the home can't be written: {said or f'tar ended with {code}'}", said)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Blocks until tar has ended."""
        self._tar.kill()
        self._tar.wait()
        self._listener.join()
        for stream in (self._tar.stdin, self._tar.stdout, self._tar.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def _took(self, chunk: bytes, *, last: bool = False) -> bool:
        assert self._tar.stdin is not None  # noqa: S101 - for the type checker
        try:
            self._tar.stdin.write(chunk)
            if last:
                self._tar.stdin.close()
        except (BrokenPipeError, ValueError):
            # Broken: it has ended early, and says why. Closed: whoever opened it has given up.
            return False
        return True

    def _said(self) -> str:
        said = " ".join(self._words)[-_LAST_WORDS:]
        # What it says of a full disk.
        return said.replace("Wrote only", "no space left on device: wrote only")

    def _listen(self) -> None:
        assert self._tar.stderr is not None  # noqa: S101 - for the type checker
        for line in self._tar.stderr:
            self._words.append(line.decode(errors="replace").strip())
            del self._words[5:]
