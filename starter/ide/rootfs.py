"""The root filesystem, from Debian's packages. What leads to them is this machine's own, and stays on it."""

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from starter.embedded.child import Folders
from starter.embedded.errors import EmbeddedError
from starter.ide.command import SEARCHED, Command, find
from starter.ide.recipe import UID, USER, Recipe

DEBIAN = "http://deb.debian.org/debian"
SECURITY = "http://deb.debian.org/debian-security"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
# The oldest release whose C library code-server's own libraries take.
OLDEST, OLDEST_NAME = 12, "bookworm"
SECONDS = 1800.0
ADVICE = "start as root on Debian or Ubuntu, or name an image in WORKSPACE_IMAGE"
# What mmdebstrap says, and what people read.
STEPS = {
    "running apt-get update": "reading the package lists",
    "downloading packages": "downloading packages",
    "extracting archives": "unpacking the base system",
    "installing essential": "installing the base system",
    "installing remaining": "installing the tools",
    "cleaning": "cleaning up",
}
# Nobody reads them in a workspace, and they are a tenth of it.
LEFT_OUT = ("doc", "info", "locale", "man")


@dataclass(frozen=True)
class Source:
    """One line of apt's sources."""

    uri: str
    suite: str
    component: str = "main"

    def __str__(self) -> str:
        return f"deb {self.uri} {self.suite} {self.component}"


def machine_suite(os_release: Path = Path("/etc/os-release")) -> str:
    """The machine's own release, as its package mirror has that one for sure; else the oldest that will do."""
    try:
        fields = dict(line.split("=", 1) for line in os_release.read_text().splitlines() if "=" in line)
    except OSError:
        return OLDEST_NAME
    values = {name: value.strip('"') for name, value in fields.items()}
    version, suite = values.get("VERSION_ID", ""), values.get("VERSION_CODENAME", "")
    if values.get("ID") == "debian" and version.isdecimal() and int(version) >= OLDEST and suite.isalpha():
        return suite
    return OLDEST_NAME


def public_sources(suite: str) -> list[Source]:
    return [Source(DEBIAN, suite), Source(DEBIAN, f"{suite}-updates"), Source(SECURITY, f"{suite}-security")]


async def make_rootfs(recipe: Recipe, target: Path, work: Path, folders: Folders, tell: Callable[[str], None]) -> None:
    """Write it to `target` as a tar. `work` is a directory of our own for what is in between."""
    apt = _Apt(folders, tell)
    if not (find("mmdebstrap") and _is_there(KEYRING)):
        await apt.install("mmdebstrap", KEYRING.stem)
    tell("looking for package mirrors")
    sources = await machine_sources(recipe.suite)
    if not sources and recipe.suite == machine_suite() and await apt.update():
        # Which archive a mirror holds is told by its lists, and a fresh machine has none.
        sources = await machine_sources(recipe.suite)
    listed, options, public = work / "sources.list", work / "apt.conf", work / "public.list"
    listed.write_text("".join(f"{source}\n" for source in sources or public_sources(recipe.suite)))
    options.write_text(await _transport() + 'Acquire::Languages "none";\n')
    public.write_text("".join(f"{source}\n" for source in public_sources(recipe.suite)))
    temporary = work / "tmp"
    # mmdebstrap may drop root for a user that has to get in here.
    temporary.mkdir(mode=0o755)

    def tell_step(line: str) -> None:
        for begins, text in STEPS.items():
            if line.startswith(f"I: {begins}"):
                tell(f"Debian {recipe.suite}: {text}")

    await Command(
        name="ide-debian",
        argv=(
            *_namespaces(),
            "mmdebstrap",
            "--variant=minbase",
            f"--architectures={recipe.architecture}",
            f"--include={','.join(recipe.packages)}",
            f"--keyring={KEYRING}",
            f"--aptopt={options}",
            "--dpkgopt=force-unsafe-io",
            *(f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            *(f"--customize-hook={hook}" for hook in hooks(public)),
            # The engine makes its own.
            "--skip=output/dev",
            recipe.suite,
            os.fspath(target),
            os.fspath(listed),
        ),
        env={"TMPDIR": os.fspath(temporary)},
        within=SECONDS,
    ).run(folders, tell_step)


def hooks(public: Path) -> list[str]:
    """What happens to the filesystem, at "$1", once its packages are in."""
    return [
        f'chroot "$1" useradd --uid {UID} --user-group --create-home --shell /bin/bash {USER}',
        # Which mirrors, proxies and name servers led here is of no use elsewhere, and nobody's business.
        'rm -f "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/etc/apt/sources.list.d/*',
        'rm -f "$1"/etc/resolv.conf "$1"/etc/hostname',
        'find "$1"/var/log -type f -delete',
        f'upload "{public}" /etc/apt/sources.list',
        'chmod 0644 "$1"/etc/apt/sources.list',
    ]


async def machine_sources(suite: str) -> list[Source]:
    """Debian's own archive as this machine reaches it, whoever mirrors it."""
    if find("apt-get") is None:
        return []
    listed = await _output(
        "apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)",
        "Created-By: Packages",
    )  # fmt: skip
    return parse_sources(listed, suite)


def parse_sources(listed: str, suite: str) -> list[Source]:
    wanted = {suite, f"{suite}-updates", f"{suite}-security"}
    found: dict[Source, None] = {}
    for line in listed.splitlines():
        fields = line.split("|")
        if len(fields) == 5 and fields[0] == "Debian" and fields[1] in wanted and fields[4] == "main":
            found[Source(fields[2], fields[3])] = None
    # Without the release itself its updates are of no use.
    return list(found) if any(line.split("|")[1:2] == [suite] for line in listed.splitlines()) else []


async def _transport() -> str:
    """How this machine's apt gets through: proxies and certificates."""
    if find("apt-config") is None:
        return ""
    dumped = await _output("apt-config", "dump", "--no-empty", "--format", '%F "%v";%n')
    wanted = ("Acquire::http::", "Acquire::https::")
    return "".join(f"{line}\n" for line in dumped.splitlines() if line.startswith(wanted))


class _Apt:
    """The machine's own. Never cut off: dpkg finishes the package it is at, and the system stays in order."""

    def __init__(self, folders: Folders, tell: Callable[[str], None]) -> None:
        self._folders = folders
        self._tell = tell

    async def install(self, *packages: str) -> None:
        if not self._usable():
            raise EmbeddedError(f"{' and '.join(packages)} are missing here: {ADVICE}.")
        await self.update()
        self._tell(f"installing {' and '.join(packages)}")
        await self._run("install", "-y", "--no-install-recommends", *packages)

    async def update(self) -> bool:
        """Whether it did. What can't be reached matters only if something is needed from there."""
        if not self._usable():
            return False
        self._tell("reading the package lists")
        with contextlib.suppress(EmbeddedError):
            await self._run("update")
        return True

    @staticmethod
    def _usable() -> bool:
        return os.geteuid() == 0 and find("apt-get") is not None

    async def _run(self, *arguments: str) -> None:
        await Command(
            name="ide-apt",
            # Another apt may be at work on a fresh machine: wait for it.
            argv=("apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments),
            env={"DEBIAN_FRONTEND": "noninteractive"},
            within=SECONDS,
            patience=60,
        ).run(self._folders)


def _namespaces() -> tuple[str, ...]:
    """As root, mmdebstrap mounts things in its filesystem for all to see, and its helpers outlive it when it is killed.

    In namespaces of its own, mounts and helpers are gone with it, however it ends. As another user it makes its own.
    """
    if os.geteuid() != 0:
        return ()
    return ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child", "--mount-proc")


def _is_there(path: Path) -> bool:
    return path.exists()


async def _output(*argv: str) -> str:
    """Of a command that takes no time. Not asyncio's: one that is cancelled would leave the command to itself."""

    def run() -> str:
        env = {**os.environ, "PATH": SEARCHED, "LC_ALL": "C"}
        done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        return done.stdout.decode(errors="replace")

    return await asyncio.to_thread(run)
