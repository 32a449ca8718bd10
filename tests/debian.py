"""Programs that tests need and a machine may lack: Debian's packages, got by the run itself."""

import os
import shutil
import subprocess
from pathlib import Path

# Another process of the run may be installing something: apt-get waits for its turn.
_APT = ["apt-get", "-o", "DPkg::Lock::Timeout=600", "-o", "Acquire::Retries=3"]


def installed(package: str, *names: str) -> str | None:
    """The path of the first of these programs that is there, installing the package where that is possible."""
    found = _found(names)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        install = [*_APT, "install", "-y", "--no-install-recommends", package]
        if not _done(install):
            # Lists that are missing or too old.
            _done([*_APT, "update"])
            _done(install)
        found = _found(names)
    return found


def unpacked(package: str, name: str, folder: Path) -> str | None:
    """The same without installing it, which would start a service for good."""
    found = shutil.which(name)
    if found or shutil.which("apt-get") is None:
        return found
    # apt drops its rights for a download; the folder is the test's own.
    download = [*_APT, "-o", "APT::Sandbox::User=root", "download", package]
    if not _done(download, folder) and not (_done([*_APT, "update"]) and _done(download, folder)):
        return None
    subprocess.run(["dpkg", "-x", next(folder.glob(f"{package}_*.deb")), folder / package], check=True)
    places = (folder / package / place / name for place in ("usr/bin", "usr/sbin"))
    return next((str(path) for path in places if path.exists()), None)


def _found(names: tuple[str, ...]) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def _done(command: list[str], folder: Path | None = None) -> bool:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False).returncode == 0
