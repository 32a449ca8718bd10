"""`codehub login` and `logout` against a real API."""

import asyncio
import json
import socket
from pathlib import Path

from starter.commands.running_stack import publish
from starter.embedded.lock import DataLock
from tests.api.world import PASSWORD, Api, Person
from tests.cli.console import Cli, Terminal


async def tokens(alice: Person) -> list[str]:
    listed = await alice("GET", "/api/v1/tokens")
    return [token["name"] for token in listed.json["items"]]


async def test_login_keeps_a_token_and_nothing_else(nobody: Cli, api: Api, alice: Person) -> None:
    """It is named after who uses it where; the session that made it is ended; the password is nowhere."""
    sessions = "SELECT count(*) FROM sessions"
    before = await api.deps.database.fetchval(sessions)
    result = await nobody.login(api.url, "alice")
    assert "Logged in" in result.out
    (name,) = await tokens(alice)
    assert name.startswith("codehub CLI, ")
    assert name.endswith(f"@{socket.gethostname()}"[-90:])
    assert await api.deps.database.fetchval(sessions) == before
    kept = (nobody.config / "logins.json").read_text()
    assert PASSWORD not in kept
    assert PASSWORD not in result.out + result.err
    assert json.loads(kept)["logins"][api.url]["username"] == "alice"


async def test_on_ones_own_machine_a_script_needs_no_name(nobody: Cli, api: Api) -> None:
    """Whoever runs codehub there is its administrator; elsewhere nobody is guessed."""
    await api.person("admin")
    assert (await nobody("login", "--url", api.url, "--password-stdin", stdin=PASSWORD)).code == 0
    assert json.loads((nobody.config / "logins.json").read_text())["logins"][api.url]["username"] == "admin"
    elsewhere = await nobody("login", "--url", "https://codehub.invalid", "--password-stdin", stdin=PASSWORD)
    assert (elsewhere.code, "--username" in elsewhere.err) == (2, True)


async def test_a_new_login_revokes_the_token_that_it_replaces(cli: Cli, api: Api, alice: Person) -> None:
    await cli.login(api.url, "alice")
    assert len(await tokens(alice)) == 1
    assert (await cli("ls")).code == 0


async def test_a_token_that_can_not_be_kept_is_revoked(nobody: Cli, api: Api, alice: Person) -> None:
    (nobody.config / "logins.tmp").mkdir(parents=True)
    result = await nobody("login", "--url", api.url, "-u", "alice", "--password-stdin", stdin=PASSWORD)
    assert (result.code, await tokens(alice)) == (1, [])
    assert "CODEHUB_CONFIG" in result.err


async def test_a_place_that_can_not_be_used_is_found_before_anything_is_sent(
    nobody: Cli, api: Api, alice: Person
) -> None:
    nobody.config.write_text("a file where the directory should be")
    result = await nobody("login", "--url", api.url, "-u", "alice", "--password-stdin", stdin="not even right")
    assert (result.code, "CODEHUB_CONFIG" in result.err) == (1, True)


async def test_logout_revokes(cli: Cli, api: Api, alice: Person) -> None:
    secret = json.loads((cli.config / "logins.json").read_text())["logins"][api.url]["token"]
    assert (await cli("logout", "--url", api.url)).code == 0
    assert await tokens(alice) == []
    assert (await cli("ls", "--url", api.url, "--token", secret)).code == 6
    assert (await cli("ls", "--url", api.url)).code == 6
    assert (await cli("logout", "--url", api.url)).code == 6


async def test_logout_of_what_is_revoked_already_or_gone(cli: Cli, api: Api, alice: Person) -> None:
    (token,) = (await alice("GET", "/api/v1/tokens")).json["items"]
    await alice("DELETE", f"/api/v1/tokens/{token['id']}")
    assert (await cli("logout")).code == 0
    gone = "http://127.0.0.1:1"
    kept = json.loads((cli.config / "logins.json").read_text())
    kept["logins"][gone] = {"username": "a", "token_id": "b", "token": "chub_c"}
    (cli.config / "logins.json").write_text(json.dumps(kept))
    refused = await cli("logout", "--url", gone)
    assert (refused.code, "--local" in refused.err) == (7, True)
    assert (await cli("logout", "--url", gone, "--local")).code == 0


async def test_wrong_password(nobody: Cli, api: Api, alice: Person) -> None:
    result = await nobody("login", "--url", api.url, "-u", "alice", "--password-stdin", "--json", stdin="wrong one")
    assert (result.code, result.out, result.error["code"]) == (6, "", "bad_credentials")
    assert not (nobody.config / "logins.json").exists()


async def test_without_a_terminal_nothing_is_asked(nobody: Cli, api: Api) -> None:
    assert (await nobody("login", "--url", api.url)).code == 2
    result = await nobody("login", "--url", api.url, "-u", "alice")
    assert (result.code, "--password-stdin" in result.err) == (2, True)
    assert (await nobody("login", "--url", api.url, "-u", "alice", "--password-stdin")).code == 2


async def test_at_a_terminal_it_asks_and_the_password_is_not_shown(nobody: Cli, api: Api, alice: Person) -> None:
    def talk() -> tuple[int, str]:
        with Terminal(nobody, "login") as terminal:
            terminal.until("Server [http://127.0.0.1:8000]:")
            terminal.write(f"{api.url}\n")
            terminal.until("Username")
            terminal.write("alice\n")
            terminal.until("Password:")
            terminal.write(f"{PASSWORD}\n")
            return terminal.end(), terminal.screen

    code, screen = await asyncio.to_thread(talk)
    assert code == 0, screen
    assert PASSWORD not in screen
    assert f"Logged in at {api.url} as alice" in screen.replace("\n", " ")
    assert (await nobody("ls")).code == 0


async def test_the_codehub_that_runs_here_is_proposed(nobody: Cli, tmp_path: Path) -> None:
    """At whatever port, and before that of an earlier login; the commands mean it, too, where there was none."""
    (tmp_path / "run").mkdir()
    publish(tmp_path, {"CODEHUB_HOST": "0.0.0.0", "CODEHUB_PORT": "8123"})
    here = nobody.having(CODEHUB_DATA=str(tmp_path))

    def proposed() -> str:
        with Terminal(here, "login") as terminal:
            terminal.until("Server [")
            terminal.until("]:")
            return terminal.screen

    with DataLock(tmp_path):
        assert "Server [http://127.0.0.1:8123]:" in await asyncio.to_thread(proposed)
        assert "codehub login --url http://127.0.0.1:8123" in (await here("ls")).err
    assert "Server [http://127.0.0.1:8000]:" in await asyncio.to_thread(proposed)


async def test_a_server_that_does_not_answer_is_told_before_the_password_is_asked_for(nobody: Cli) -> None:
    def talk() -> tuple[int, str]:
        with Terminal(nobody, "login", "--url", "http://127.0.0.1:1", "-u", "alice", columns=200) as terminal:
            return terminal.end(), terminal.screen

    code, screen = await asyncio.to_thread(talk)
    assert (code, "Password" in screen) == (7, False), screen


async def test_a_password_over_the_open_net_is_warned_of(nobody: Cli) -> None:
    """The name resolves nowhere: it is about the warning."""
    result = await nobody("login", "--url", "http://codehub.invalid", "-u", "alice", "--password-stdin", stdin=PASSWORD)
    assert result.code == 7
    assert "not encrypted" in result.err


async def test_token_and_url_by_environment(nobody: Cli, api: Api, alice: Person) -> None:
    """For scripts: nothing is kept, nothing is needed."""
    token = (await alice("POST", "/api/v1/tokens", {"name": "script"})).json["token"]
    script = nobody.having(CODEHUB_URL=api.url, CODEHUB_TOKEN=token)
    await alice.workspace("one")
    listed = await script("ls", "--json")
    assert [ws["name"] for ws in listed.json["items"]] == ["one"]
    assert not nobody.config.exists()
    assert (await script("ls", "--token", "no\ntoken")).code == 2
