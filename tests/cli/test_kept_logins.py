import asyncio
import stat
from pathlib import Path

import pytest

from starter.commands.failure import CommandFailed, Exit
from starter.commands.kept_logins import KeptLogin, KeptLogins, config_folder, is_private, normal_url

LOGIN = KeptLogin("alice", "id", "chub_secret")


def test_only_the_owner_can_read_them(tmp_path: Path) -> None:
    kept = KeptLogins(tmp_path / "new" / "folder")
    kept.keep("http://a", LOGIN)
    assert stat.S_IMODE(kept.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.path.parent.stat().st_mode) == 0o700
    assert "chub_secret" not in repr(kept.get("http://a"))


def test_one_per_server_and_the_latest_is_meant(tmp_path: Path) -> None:
    kept = KeptLogins(tmp_path)
    assert (kept.latest_url, kept.get("http://a")) == (None, None)
    kept.keep("http://a", LOGIN)
    kept.keep("http://b", KeptLogin("bob", "id2", "chub_other"))
    assert (kept.latest_url, kept.get("http://a"), kept.get("http://c")) == ("http://b", LOGIN, None)
    kept.forget("http://b")
    assert (kept.latest_url, kept.get("http://b")) == ("http://a", None)
    kept.forget("http://a")
    assert kept.latest_url is None


async def test_logins_at_once_do_not_lose_each_other(tmp_path: Path) -> None:
    kept = KeptLogins(tmp_path)
    await asyncio.gather(*(asyncio.to_thread(kept.keep, f"http://{n}", LOGIN) for n in range(20)))
    assert all(kept.get(f"http://{n}") == LOGIN for n in range(20))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "logins.json").write_text("{")
    with pytest.raises(CommandFailed, match=r"logins\.json is damaged"):
        KeptLogins(tmp_path).get("http://a")


def test_where_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CODEHUB_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", "/x")
    assert config_folder() == Path("/x/codehub")
    monkeypatch.setenv("CODEHUB_CONFIG", "/y")
    assert config_folder() == Path("/y")


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("Codehub.Example.ORG", "https://codehub.example.org"),
        ("HTTPS://Host/codehub/", "https://host/codehub"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_one_spelling_for_one_server(given: str, normal: str) -> None:
    assert normal_url(given) == normal


@pytest.mark.parametrize(
    "given", ["", "ftp://x", "http://", "http://u:p@x", "http://x?y", "http://x:port", "http://[x"]
)
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(CommandFailed) as failed:
        normal_url(given)
    assert failed.value.exit_code is Exit.USAGE


def test_a_password_is_sent_in_the_clear_to_oneself_only() -> None:
    assert [is_private(url) for url in ("https://a", "http://127.0.0.1:1", "http://localhost", "http://a")] == [
        True,
        True,
        True,
        False,
    ]
