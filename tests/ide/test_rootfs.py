"""Where Debian's packages come from: the machine's own mirrors, and none of them in the image."""

from pathlib import Path

import pytest

from starter.ide.rootfs import Source, machine_suite, parse_sources, public_sources

LISTED = """\
Debian|bookworm|http://mirror.example/debian/|bookworm|main
Debian|bookworm|http://mirror.example/debian/|bookworm|contrib
Debian|bookworm-updates|http://mirror.example/debian/|bookworm-updates|main
Debian|bookworm-security|http://mirror.example/debian-security/|stable-security|main
Debian Backports|bookworm-backports|http://mirror.example/debian/|bookworm-backports|main
Docker|bookworm|https://packages.example/docker|bookworm|main
||https://packages.example/cloud|cloud-bookworm|main
"""


def test_the_mirrors_of_this_machine() -> None:
    """Debian's own archive is taken from where the machine has it; nobody else's packages get in."""
    assert parse_sources(LISTED, "bookworm") == [
        Source("http://mirror.example/debian/", "bookworm"),
        Source("http://mirror.example/debian/", "bookworm-updates"),
        Source("http://mirror.example/debian-security/", "stable-security"),
    ]


@pytest.mark.parametrize(
    "listed", ["", "Debian|bookworm-updates|http://mirror.example/debian/|bookworm-updates|main\n"]
)
def test_no_mirror_of_the_release(listed: str) -> None:
    """A machine that doesn't know the release says so by an empty list, and Debian's public archive is used."""
    assert parse_sources(listed, "bookworm") == []


def test_public_sources() -> None:
    """What the image itself is told is Debian's public archive, security updates included."""
    assert [str(source) for source in public_sources("trixie")] == [
        "deb http://deb.debian.org/debian trixie main",
        "deb http://deb.debian.org/debian trixie-updates main",
        "deb http://deb.debian.org/debian-security trixie-security main",
    ]


@pytest.mark.parametrize(
    ("os_release", "suite"),
    [
        ('ID=debian\nVERSION_ID="13"\nVERSION_CODENAME=trixie\n', "trixie"),
        ('ID=debian\nVERSION_ID="11"\nVERSION_CODENAME=bullseye\n', "bookworm"),
        ('ID=debian\nVERSION_CODENAME="trixie/sid"\n', "bookworm"),
        ('ID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n', "bookworm"),
    ],
)
def test_release(os_release: str, suite: str, tmp_path: Path) -> None:
    """The machine's own Debian, as its mirror has that for sure; where it is none or too old, Debian 12."""
    file = tmp_path / "os-release"
    file.write_text(os_release)
    assert machine_suite(file) == suite


def test_release_of_no_linux(tmp_path: Path) -> None:
    """A machine that doesn't tell gets the default."""
    assert machine_suite(tmp_path / "missing") == "bookworm"
