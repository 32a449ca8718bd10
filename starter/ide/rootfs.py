"""The root filesystem, from Debian's packages. What leads to them is this machine's own, and stays on it."""

import asyncio
import os
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
    await _install_tool(folders, tell)
    tell("looking for package mirrors")
    sources = await machine_sources(recipe.suite) or public_sources(recipe.suite)
    listed, options, public = work / "sources.list", work / "apt.conf", work / "public.list"
    listed.write_text("".join(f"{source}\n" for source in sources))
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


async def _install_tool(folders: Folders, tell: Callable[[str], None]) -> None:
    if find("mmdebstrap") and _is_there(KEYRING):
        return
    if os.geteuid() != 0 or find("apt-get") is None:
        raise EmbeddedError(f"mmdebstrap and debian-archive-keyring are missing here: {ADVICE}.")
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    # Another apt may be at work on a fresh machine: wait for it.
    apt = ("apt-get", "-o", "DPkg::Lock::Timeout=300")
    tell("reading the package lists")
    await Command(name="ide-apt", argv=(*apt, "update"), env=env, within=SECONDS, patience=60).run(folders)
    tell("installing mmdebstrap")
    install = (*apt, "install", "-y", "--no-install-recommends", "mmdebstrap", "debian-archive-keyring")
    # Not cut off: dpkg finishes the package it is at, and the system stays in order.
    await Command(name="ide-apt", argv=install, env=env, within=SECONDS, patience=60).run(folders)


def _is_there(path: Path) -> bool:
    return path.exists()


async def _output(*argv: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *argv,
        env={**os.environ, "PATH": SEARCHED, "LC_ALL": "C"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    output, _ = await process.communicate()
    return output.decode(errors="replace")
