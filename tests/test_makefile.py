"""The Makefile on a bare machine: what it installs by itself, and what it says where it can't."""

import os
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parents[1] / "Makefile"
# Debian's without python3-venv: there is the module, and it fails.
PYTHON = """
[ "$1" = -c ] && exit 0
[ -e {folder}/has-venv ] || { echo "ensurepip is not available"; exit 1; }
mkdir -p .tools/bin
printf '#!/bin/sh\\ntouch .tools/bin/uv\\n' > .tools/bin/pip
chmod +x .tools/bin/pip
"""
APT = """
echo "$*" >> {folder}/asked
[ "$1" = update ] || touch {folder}/has-venv
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A folder of programs that come before the machine's own."""
    (tmp_path / "Makefile").write_bytes(MAKEFILE.read_bytes())
    (tmp_path / "programs").mkdir()
    add(tmp_path, "python3", PYTHON)
    return tmp_path


def test_root_on_debian_gets_the_venv_module(machine: Path) -> None:
    """No question, no message: `make up` goes on."""
    add(machine, "apt-get", APT)
    done = make(machine, user=0)
    assert done.returncode == 0, done.stderr
    assert (machine / "asked").read_text() == "update -qq\ninstall -qq -y python3-venv\n"
    assert (machine / ".tools/bin/uv").exists()


@pytest.mark.parametrize(("user", "apt"), [(1000, APT), (0, "exit 100")])
def test_whoever_cannot_install_it_is_told_what_to_do(machine: Path, user: int, apt: str) -> None:
    add(machine, "apt-get", apt)
    done = make(machine, user=user)
    assert done.returncode != 0
    assert "The venv module is missing: on Debian, apt-get install python3-venv\n" in done.stderr
    assert not (machine / "asked").exists()


def test_where_it_is_there_nothing_is_installed(machine: Path) -> None:
    add(machine, "apt-get", APT)
    (machine / "has-venv").touch()
    assert make(machine, user=0).returncode == 0
    assert not (machine / "asked").exists()


def add(machine: Path, name: str, body: str) -> None:
    path = machine / "programs" / name
    path.write_text("#!/bin/sh" + f"\n{body}\n".replace("{folder}", str(machine)))
    path.chmod(0o755)


def make(machine: Path, *, user: int) -> subprocess.CompletedProcess[str]:
    add(machine, "id", f"echo {user}")
    env = {**os.environ, "PATH": f"{machine / 'programs'}:{os.environ['PATH']}", "MAKEFLAGS": ""}
    return subprocess.run(
        ["make", "PYTHON=python3", ".tools/bin/uv"], cwd=machine, env=env, capture_output=True, text=True, check=False
    )
