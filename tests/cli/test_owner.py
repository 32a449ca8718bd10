"""`--owner` and `ls --all`: an admin sees to the workspaces of others, by the commands that the runbook names."""

import asyncio

import pytest

from domain.limits import Limits
from starter.api.dependencies import ApiConfig
from tests.api.world import Api, Person, serving, until
from tests.cli.console import Cli, Terminal

ENDED = {"operation": "NONE", "op_id": None, "op_started_at": None}
ADMINS = [("show",), ("explain",), ("log",), ("recover",), ("rm", "--yes")]


@pytest.fixture
async def root(cli: Cli, api: Api) -> Cli:
    """Logged in as an admin, who has a workspace of the same name as alice's, and none in ERROR."""
    admin = await api.person("root", is_admin=True)
    await admin.workspace("demo")
    await cli.login(api.url, "root")
    return cli


@pytest.fixture
async def broken(api: Api, alice: Person) -> str:
    """Alice's workspace in ERROR, with the operation that failed."""
    workspace = await alice.workspace("demo", description="a secret plan")
    op = await api.busy(workspace)
    await api.row(workspace, phase="ERROR", error_reason="Timeout", error_count=1, **ENDED)
    await api.deps.database.execute(
        "UPDATE operations SET outcome = 'FAILED', finished_at = now(), error_message = 'took too long' WHERE id = $1",
        op,
    )
    return workspace


async def test_an_admin_carries_out_the_runbook(root: Cli, api: Api, alice: Person, broken: str) -> None:
    """Find it, read why, see its log, recover it: alice's, and not the admin's own of the same name."""
    listed = (await root("ls", "--all", "--phase", "error")).out.splitlines()
    assert listed[0].split()[:3] == ["NAME", "OWNER", "STATE"]
    assert [line.split()[:4] for line in listed[1:]] == [["demo", "alice", "ERROR", "Timeout"]]
    explained = await root("explain", "demo", "--owner", "alice")
    assert explained.out.startswith("alice's demo")
    assert "took too long" in explained.out
    assert "took too long" in (await root("log", "demo", "--owner", "alice")).out
    shown = (await root("show", "demo", "--owner", "alice")).out
    assert broken in shown
    assert "a secret plan" not in shown
    assert "/w/" not in shown, "an address that is not the admin's to open"
    recovered = await root("recover", "demo", "--owner", "alice")
    assert recovered.code == 0, recovered.err
    assert "codehub show demo --owner alice" in recovered.out
    assert (await alice("GET", f"/api/v1/workspaces/{broken}")).json["error_reason"] is None
    assert "root recovered it from Timeout" in (await root("explain", "demo", "--owner", "alice")).out


async def test_json_is_the_apis(root: Cli, alice: Person, broken: str) -> None:
    told = (await alice("GET", f"/api/v1/workspaces/{broken}/explain")).json
    assert (await root("explain", "demo", "--owner", "alice", "--json")).json == told
    shown = (await root("show", broken[:8], "--owner", "alice", "--json")).json
    assert (shown["owner"], shown["id"], "memo" in shown) == ("alice", broken, False)
    of_one = (await root("ls", "--owner", "alice", "--json")).json
    assert [ws["id"] for ws in of_one["items"]] == [broken]
    assert (await root("ls", "--all", "--json")).json["total"] == 2


async def test_after_a_loss_it_asks_whose_it_is(root: Cli, api: Api, alice: Person, broken: str) -> None:
    """By the words that the owner would read, and with the owner's name in the question."""
    await api.row(broken, error_reason="DataLost")
    alone = await root("recover", "demo", "--owner", "alice", "--json")
    assert (alone.code, "goes on with an empty home" in alone.error["message"]) == (2, True)

    def answer(command: str, question: str, typed: str) -> int:
        with Terminal(root, command, "demo", "--owner", "alice", columns=400) as terminal:
            terminal.until(question)
            terminal.write(typed)
            return terminal.end()

    assert await asyncio.to_thread(answer, "recover", "Accept the loss and recover alice's demo? [y/N]:", "n\n") == 1
    assert (await alice("GET", f"/api/v1/workspaces/{broken}")).json["error_reason"] == "DataLost"
    assert await asyncio.to_thread(answer, "recover", "Accept the loss and recover alice's demo? [y/N]:", "y\n") == 0
    assert await asyncio.to_thread(answer, "rm", "Delete alice's demo? [y/N]:", "y\n") == 0
    assert (await alice("GET", f"/api/v1/workspaces/{broken}")).json["desired_state"] == "DELETED"
    assert (await root("show", "demo", "--json")).json["desired_state"] == "STANDBY", "the admin's own"


async def test_it_can_be_followed_to_its_end(root: Cli, api: Api, broken: str) -> None:
    """Without live events, which tell everybody of their own only."""
    async with root.running("recover", "demo", "--owner", "alice", "--wait", "--json") as process:
        assert process.stderr
        await until(lambda: _holds(api, broken, "error_reason IS NULL"))
        await api.row(broken, phase="PENDING")
        await api.busy(broken, "PROVISIONING")
        async with asyncio.timeout(30):
            while "demo: PROVISIONING" not in (await process.stderr.readline()).decode():
                pass
        await api.row(broken, phase="STANDBY", **ENDED)
        out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err.decode()
    assert b'"STANDBY"' in out
    async with root.running("rm", "demo", "--owner", "alice", "--yes", "--wait") as process:
        await until(lambda: _holds(api, broken, "deleted_at IS NOT NULL"))
        await api.row(broken, phase="DELETED")
        out, _ = await asyncio.wait_for(process.communicate(), 30)
    assert out.decode().startswith("alice's demo is deleted (")


async def _holds(api: Api, workspace: str, condition: str) -> bool:
    return bool(await api.deps.database.fetchval(f"SELECT {condition} FROM workspaces WHERE id = $1", workspace))


async def test_who_is_not_an_admin_is_told_so(cli: Cli, api: Api, alice: Person, broken: str) -> None:
    """Clearly, with every command, also of a workspace of their own; and nothing is done."""
    await api.person("bob")
    for command, *more in ADMINS:
        for whose in ("alice", "bob"):
            refused = await cli(command, "demo", "--owner", whose, *more, "--json")
            assert (refused.code, refused.out, refused.error["code"]) == (1, "", "admin_only"), command
            assert f"your login at {api.url} is not an admin's" in refused.error["message"]
    for words in (("ls", "--all"), ("ls", "--owner", "bob")):
        assert "is not an admin's" in (await cli(*words)).err
    assert (await alice("GET", f"/api/v1/workspaces/{broken}")).json["error_reason"] == "Timeout"


async def test_a_name_that_is_not_right(root: Cli, broken: str) -> None:
    """Of the user or of the workspace: it says which, and what comes near."""
    user = await root("show", "demo", "--owner", "alcie")
    assert (user.code, user.err) == (3, "codehub: There is no user 'alcie'. Did you mean alice?\n")
    assert (await root("show", "demo", "--owner", "zzz")).err == "codehub: There is no user 'zzz'.\n"
    workspace = await root("show", "dmo", "--owner", "alice")
    assert (workspace.code, workspace.err) == (
        3,
        "codehub: There is no workspace 'dmo' of alice. Did you mean demo?\n",
    )
    assert "codehub ls --owner alice shows" in (await root("show", "zzz", "--owner", "alice")).err
    assert (await root("ls", "--all", "--owner", "alice")).code == 2


async def test_the_owners_limit(nobody: Cli, database_url: str) -> None:
    """Refused for want of the owner's places, it says whose and which: the admin has none to give."""
    config = ApiConfig(default_image="i", limits=Limits(max_running_per_user=1))
    async with serving(database_url, config) as api:
        alice, _ = await api.person("alice"), await api.person("root", is_admin=True)
        workspace = await alice.workspace("demo", desired_state="RUNNING")
        await api.row(workspace, phase="ERROR", error_reason="Timeout")
        await alice.workspace("other", desired_state="RUNNING")
        await nobody.login(api.url, "root")
        refused = await nobody("recover", "demo", "--owner", "alice", "--json")
        assert (refused.code, refused.error["code"]) == (5, "limit_per_user")
        assert "alice's are other: only alice can stop one." in refused.error["message"]


@pytest.mark.parametrize("command", ["show", "explain", "log", "recover", "rm", "ls"])
async def test_help_tells_of_it(nobody: Cli, command: str) -> None:
    told = (await nobody(command, "--help")).out
    assert "--owner USER" in told
    assert "For admins" in told
