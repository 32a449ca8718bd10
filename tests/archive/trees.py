"""Homes with everything in them that has to survive a round trip, and what they look like from outside."""

import hashlib
import os
import random
import stat
from contextlib import suppress
from pathlib import Path

Snapshot = dict[bytes, tuple[object, ...]]

_NAMES = [b"plain", b".hidden", b"with space", b"new\nline", b"quote'\"", b"back\\slash", b"-dash", b"tab\t", b"*?[x]"]
_MODES = [0o644, 0o600, 0o755, 0o000, 0o777, 0o4755, 0o2755, 0o1644, 0o6711]
_OWNERS = [(0, 0), (1000, 1000), (1000, 100), (65534, 65534), (3_000_000, 3_000_001)]


def snapshot(root: Path, *, nanoseconds: bool = True) -> Snapshot:
    """Kind, mode, owners, mtime, links and content of everything below, and of the top itself. Hard links to one
    file are known by the names that share it."""
    top = os.fsencode(root)
    found: Snapshot = {}
    shared: dict[int, list[bytes]] = {}
    for folder, folders, files in os.walk(top):
        names = [*folders, *files, *([b"."] if folder == top else [])]
        for name in names:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            if stat.S_ISSOCK(info.st_mode):
                continue
            relative = os.path.relpath(path, top)
            if not stat.S_ISDIR(info.st_mode):
                shared.setdefault(info.st_ino, []).append(relative)
            mtime = info.st_mtime_ns if nanoseconds else info.st_mtime_ns // 10**9
            found[relative] = (
                stat.filemode(info.st_mode),
                info.st_uid,
                info.st_gid,
                mtime,
                info.st_size if stat.S_ISREG(info.st_mode) else 0,
                _content(path, info.st_mode),
            )
    for names in shared.values():
        for name in names:
            found[name] = (*found[name], tuple(sorted(names)))
    return found


def bytes_in(root: Path) -> int:
    """Of its files as far as they are written, while others write them."""
    found = 0
    for folder, _, files in os.walk(os.fsencode(root)):
        for name in files:
            with suppress(OSError):
                info = os.lstat(os.path.join(folder, name))
                found += info.st_size if stat.S_ISREG(info.st_mode) else 0
    return found


def grow(root: Path, seed: int, *, entries: int = 40, largest: int = 300_000) -> None:
    """A random home, the same for the same seed. Only root can make all of it."""
    chance = random.Random(seed)
    top = os.fsencode(root)
    folders: list[bytes] = [top]
    files: list[bytes] = []
    for number in range(entries):
        path = os.path.join(chance.choice(folders), _name(chance, number))
        match chance.choice(["file"] * 5 + ["folder", "folder", "link", "hard", "sparse", "fifo"]):
            case "folder":
                os.mkdir(path)
                folders.append(path)
            case "link":
                os.symlink(_target(chance), path)
                os.chown(path, *chance.choice(_OWNERS), follow_symlinks=False)
                os.utime(path, ns=(0, _mtime(chance)), follow_symlinks=False)
            case "hard" if files:
                os.link(chance.choice(files), path)
            case "fifo":
                os.mkfifo(path)
            case "sparse":
                _sparse(chance, path, largest * 10)
                files.append(path)
            case _:
                _write(path, chance.randbytes(chance.choice([0, 1, 511, 512, 513, chance.randrange(largest)])))
                files.append(path)
    for path in [*files, *reversed(folders)]:
        os.chown(path, *chance.choice(_OWNERS))
        mode = chance.choice(_MODES) if path in files else chance.choice([0o755, 0o700, 0o1777, 0o2750, 0o500])
        os.chmod(path, mode)
    for path in [*files, *reversed(folders)]:
        os.utime(path, ns=(0, _mtime(chance)))


def many_files(root: Path, count: int, per_folder: int = 200) -> None:
    """As a package manager leaves them."""
    for number in range(count):
        folder = root / f"modules-{number // per_folder}"
        if number % per_folder == 0:
            folder.mkdir()
        (folder / f"file-{number}.js").write_bytes(b"module.exports = %d;\n" % number * (number % 50))


def too_deep(root: Path) -> None:
    """Deeper than what is extracted by path can be."""
    fd = os.open(root, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=fd)
        inner = os.open("d" * 100, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fd))
    os.close(fd)


def _content(path: bytes, mode: int) -> object:
    if stat.S_ISLNK(mode):
        return os.readlink(path)
    if not stat.S_ISREG(mode):
        return None
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _name(chance: random.Random, number: int) -> bytes:
    match chance.randrange(6):
        case 0:
            return chance.choice(_NAMES) + b"%d" % number
        case 1:
            # Any bytes but a slash and zero; as long as a name can be, now and then.
            length = chance.choice([3, 20, 100, 101, 156, 240])
            return bytes(chance.choice([*range(1, 47), *range(48, 256)]) for _ in range(length)) + b"%d" % number
        case 2:
            return "한글 émoji 🚀".encode() + b"%d" % number
        case 3:
            return b".wh.%d" % number
    return b"file-%d" % number


def _target(chance: random.Random) -> bytes:
    targets = [
        b"nowhere",
        b"/etc/passwd",
        b"../../../../../etc/shadow",
        b"x" * 101,
        b"y" * 3000,
        b"\xff\xfe/\x01",
        b".",
    ]
    return chance.choice(targets)


def _mtime(chance: random.Random) -> int:
    return chance.randrange(0, 4_000_000_000) * 10**9 + chance.choice([0, 1, 999_999_999, chance.randrange(10**9)])


def _sparse(chance: random.Random, path: bytes, largest: int) -> None:
    with open(path, "wb") as file:
        for _ in range(chance.randrange(4)):
            file.seek(chance.randrange(largest))
            file.write(chance.randbytes(chance.randrange(1, 5000)))
        file.truncate(max(file.tell(), chance.randrange(largest)))


def _write(path: bytes, body: bytes) -> None:
    with open(path, "wb") as file:
        file.write(body)
