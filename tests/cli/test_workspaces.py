"""The client's commands against a real API: what they do, and what they say."""

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.api.world import Api, Person
from tests.cli.console import Cli, Terminal


async def test_ls(cli: Cli, api: Api, alice: Person) -> None:
    """Name, state, what comes next, when it was used; JSON is the API's."""
    assert "codehub create NAME" in (await cli("ls")).out
    one, two = await alice.workspace("one"), await alice.workspace("two")
    await api.row(one, phase="STANDBY")
    await api.busy(two, "PROVISIONING")
    listed = await cli("ls")
    lines = {line.split()[0]: line for line in listed.out.splitlines()}
    assert lines["NAME"].split() == ["NAME", "STATE", "NEXT", "USED", "ID"]
    assert "STANDBY" in lines["one"]
    assert "is archived in 30 min" in lines["one"]
    assert one[:8] in lines["one"]
    assert "PENDING › PROVISIONING" in lines["two"]
    assert all(line == line.rstrip() for line in listed.out.splitlines())
    assert "\x1b" not in listed.out
    assert (await cli("ls", "--json")).json == (await alice("GET", "/api/v1/workspaces")).json
    only = (await cli("ls", "--phase", "standby", "--json")).json
    assert ([ws["name"] for ws in only["items"]], only["total"]) == (["one"], 1)


async def test_ls_shows_all_pages(cli: Cli, api: Api, alice: Person) -> None:
    await api.deps.database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
        " SELECT gen_random_uuid(), $1, 'w' || n, 'i', 'STANDBY' FROM generate_series(1, 405) n",
        alice.id,
    )
    listed = (await cli("ls", "--json")).json
    assert (len(listed["items"]), listed["total"]) == (405, 405)
    assert (await cli("show", "w7", "--json")).json["name"] == "w7"


async def test_ls_fits_the_terminal(cli: Cli, api: Api, alice: Person) -> None:
    """The name gives way, then whole columns do; no line is broken. Colours only where they are wanted."""
    await alice.workspace("a-name-that-is-much-longer-than-anybody-would-ever-want-to-type-in-full")

    def look(columns: int, *, colours: bool = False) -> Terminal:
        with Terminal(cli, "ls", columns=columns, colours=colours) as terminal:
            assert terminal.end() == 0
            return terminal

    for columns in (120, 80, 60, 40):
        terminal = await asyncio.to_thread(look, columns)
        lines = terminal.screen.splitlines()
        assert len(lines) == 2, terminal.screen
        assert max(map(len, lines)) <= columns
        assert "a-name" in lines[1]
        assert "PENDING" in lines[1]
        # Bold is no colour.
        assert "\x1b[3" not in terminal.raw
    assert "\x1b[33m" in (await asyncio.to_thread(look, 80, colours=True)).raw


async def test_create(cli: Cli, api: Api, alice: Person) -> None:
    made = await cli(
        *("create", "demo", "--image", "ide:2", "--description", "for tests", "--state", "standby"),
        *("--standby-ttl", "2h", "--archive-ttl", "never", "--json"),
    )
    assert made.code == 0, made.err
    ws = made.json
    assert ws == (await alice("GET", f"/api/v1/workspaces/{ws['id']}")).json
    assert (ws["name"], ws["image_ref"], ws["description"]) == ("demo", "ide:2", "for tests")
    assert (ws["desired_state"], ws["standby_ttl_seconds"], ws["archive_ttl_seconds"]) == ("STANDBY", 7200, 0)
    plain = (await cli("create", "plain", "--json")).json
    assert (plain["desired_state"], plain["standby_ttl_seconds"]) == ("RUNNING", None)
    assert "on its way to RUNNING" in (await cli("create", "third")).out


async def test_names(cli: Cli, api: Api, alice: Person) -> None:
    """A name, an id, or the beginning of an id; a name comes first; what is ambiguous is listed."""
    ids = ["aaaa1111-0000-4000-8000-000000000000", "aaaa2222-0000-4000-8000-000000000000"]
    ids += ["bbbbbbbb-0000-4000-8000-000000000000", "bbbbbbbb-0000-4000-8000-000000000001"]
    for workspace_id, name in zip(ids, ("one", "aaaa1", "three", "four"), strict=True):
        await api.deps.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " VALUES ($1, $2, $3, 'i', 'STANDBY')",
            workspace_id,
            alice.id,
            name,
        )
    for given, meant in {"one": 0, ids[0]: 0, ids[0].upper(): 0, "aaaa11": 0, "aaaa22": 1, "aaaa1": 1}.items():
        assert (await cli("show", given, "--json")).json["id"] == ids[meant], given
    ambiguous = await cli("show", "bbbbbb")
    assert ambiguous.code == 2
    assert all(workspace_id in ambiguous.err for workspace_id in ids[2:])
    slip = await cli("stop", "aaaa2")
    assert (slip.code, "Of an id, give at least 6 characters." in slip.err) == (3, True)
    missing = await cli("show", "ane")
    assert (missing.code, "Did you mean one?" in missing.err) == (3, True)
    assert (await cli("show", "")).code == 3


async def test_a_new_one_may_have_the_name_of_one_that_is_being_deleted(cli: Cli, api: Api, alice: Person) -> None:
    old = await alice.workspace("same")
    await alice("DELETE", f"/api/v1/workspaces/{old}")
    new = await alice.workspace("same")
    assert (await cli("show", "same", "--json")).json["id"] == new


@pytest.mark.parametrize(("command", "wanted"), [("start", "RUNNING"), ("stop", "STANDBY"), ("archive", "ARCHIVED")])
async def test_steering(cli: Cli, api: Api, alice: Person, command: str, wanted: str) -> None:
    """It sets desired_state and nothing else; asked again, it is no error."""
    workspace = await alice.workspace("demo")
    for _ in range(2):
        steered = await cli(command, "demo", "--json")
        assert (steered.code, steered.json["desired_state"]) == (0, wanted)
        assert steered.json == (await alice("GET", f"/api/v1/workspaces/{workspace}")).json
    assert f"on its way to {wanted}" in (await cli(command, "demo")).out
    await api.row(workspace, phase=wanted, archive_key="k")
    assert (await cli(command, "demo")).out.startswith(f"demo is {wanted}.")


async def test_recover(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    await api.row(workspace, phase="ERROR", error_reason="Timeout", error_count=1)
    recovered = await cli("recover", "demo", "--json")
    assert (recovered.code, recovered.json["error_reason"]) == (0, None)
    await api.row(workspace, phase="STANDBY")
    assert (await cli("recover", "demo")).code == 4


@pytest.mark.parametrize(
    ("archive", "condition", "said"),
    [
        (None, "NoArchive", "goes on with an empty home"),
        ("k", "NotObserved", "everything since its last archive"),
        ("k", "ArchiveAbsent", "Its archive is gone too"),
    ],
)
async def test_recover_says_what_is_given_up_and_asks(
    cli: Cli, api: Api, alice: Person, archive: str | None, condition: str, said: str
) -> None:
    """After DataLost, recovering accepts the loss: a person is asked, a script has to say so."""
    workspace = await alice.workspace("demo")
    seen = {"status": "False", "reason": condition, "message": "", "last_transition_time": "2026-01-01T00:00:00Z"}
    lost = {"phase": "ERROR", "error_reason": "DataLost", "archive_key": archive}
    await api.row(workspace, **lost, conditions={"storage.archive_ready": seen})
    alone = await cli("recover", "demo", "--json")
    assert (alone.code, alone.error["code"]) == (2, "usage")
    assert said in alone.error["message"]
    assert "--yes" in alone.error["message"]

    def answer(typed: str) -> tuple[int, str]:
        with Terminal(cli, "recover", "demo", columns=400) as terminal:
            terminal.until("Accept the loss and recover demo? [y/N]:")
            terminal.write(typed)
            return terminal.end(), terminal.screen

    code, screen = await asyncio.to_thread(answer, "n\n")
    assert (code, said in screen) == (1, True)
    assert (await alice("GET", f"/api/v1/workspaces/{workspace}")).json["error_reason"] == "DataLost"
    assert (await asyncio.to_thread(answer, "y\n"))[0] == 0
    assert (await alice("GET", f"/api/v1/workspaces/{workspace}")).json["error_reason"] is None
    await api.row(workspace, **lost)
    assert (await cli("recover", "demo", "--yes")).code == 0


async def test_recover_says_what_is_back_and_of_when_the_archive_is(cli: Cli, api: Api, alice: Person) -> None:
    """Whoever is asked is told the truth: how old the archive is, and that the volume was put back."""
    workspace = await alice.workspace("demo")
    op = await api.busy(workspace)
    await api.deps.database.execute(
        "UPDATE operations SET outcome = 'SUCCEEDED', started_at = '2026-01-02T15:49:10Z', finished_at = now()"
        " WHERE id = $1",
        op,
    )
    lost = {"phase": "ERROR", "error_reason": "DataLost", "archive_key": f"{workspace}/{op}/home.tar.zst"}
    await api.row(workspace, **lost, operation="NONE", op_id=None, op_started_at=None, node="b")
    alone = (await cli("recover", "demo", "--json")).error["message"]
    assert "Given up: everything since its last archive, of 2026-01-02 15:49 UTC." in alone
    seen = {"status": "True", "reason": "VolumePresent", "message": "", "last_transition_time": "2026-01-01T00:00:00Z"}
    await api.row(workspace, conditions={"storage.volume_ready": seen})
    back = (await cli("recover", "demo", "--json")).error["message"]
    assert "Its volume is there again" in back
    assert "Given up" not in back

    def question() -> str:
        with Terminal(cli, "recover", "demo", columns=400) as terminal:
            terminal.until("[y/N]:")
            terminal.write("n\n")
            terminal.end()
            return terminal.screen

    assert "Recover demo? [y/N]" in await asyncio.to_thread(question)


async def test_recover_asks_also_where_a_container_runs_without_its_volume(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    await api.row(workspace, phase="ERROR", error_reason="ContainerWithoutVolume")
    alone = await cli("recover", "demo", "--json")
    assert (alone.code, "and what is in the container" in alone.error["message"]) == (2, True)


async def test_rm_says_what_is_lost_and_asks(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    await api.row(workspace, phase="ARCHIVED", archive_key="k")
    assert (await cli("rm", "demo")).code == 2

    def answer(typed: str) -> tuple[int, str]:
        with Terminal(cli, "rm", "demo") as terminal:
            terminal.until("Delete demo? [y/N]:")
            terminal.write(typed)
            return terminal.end(), terminal.screen

    code, screen = await asyncio.to_thread(answer, "n\n")
    assert (code, "Its home, which is archived, will be lost." in screen) == (1, True)
    assert (await alice("GET", f"/api/v1/workspaces/{workspace}")).json["desired_state"] == "STANDBY"
    assert (await asyncio.to_thread(answer, "y\n"))[0] == 0
    assert (await alice("GET", f"/api/v1/workspaces/{workspace}")).json["desired_state"] == "DELETED"
    other = await alice.workspace("other")
    removed = await cli("rm", "other", "--yes", "--json")
    assert (removed.code, removed.out) == (0, "")
    assert (await alice("GET", f"/api/v1/workspaces/{other}")).json["desired_state"] == "DELETED"


async def test_show_and_explain(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo", description="[bold]not markup[/]")
    op = await api.busy(workspace)
    await api.row(workspace, operation="NONE", op_id=None, op_started_at=None, phase="ERROR", error_reason="Timeout")
    await api.deps.database.execute(
        "UPDATE operations SET outcome = 'FAILED', finished_at = now(), error_message = 'took too long' WHERE id = $1",
        op,
    )
    shown = await cli("show", "demo")
    assert "[bold]not markup[/]" in shown.out
    assert "ERROR Timeout" in shown.out
    assert f"{api.url}/w/{workspace}/" in shown.out
    explained = await cli("explain", "demo")
    assert "recover to try again" in explained.out
    assert "took too long" in explained.out
    whole = (await alice("GET", f"/api/v1/workspaces/{workspace}/explain")).json
    assert (await cli("explain", "demo", "--json")).json == whole
    assert (await cli("show", "demo", "--json")).json == (await alice("GET", f"/api/v1/workspaces/{workspace}")).json


async def test_what_is_under_way_is_given_up_after_its_timeout(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    await api.busy(workspace)
    await api.deps.database.execute("UPDATE workspaces SET op_started_at = now() - interval '2 minutes'")
    explained = await cli("explain", "demo")
    assert "It is given up in 3 min (Timeout), unless it is done by then." in explained.out
    assert "is given up in 3 min (Timeout)" in (await cli("show", "demo")).out
    step = (await alice("GET", f"/api/v1/workspaces/{workspace}/explain")).json["next_step"]
    begun = (await alice("GET", f"/api/v1/workspaces/{workspace}")).json["op_started_at"]
    assert (step["desired_state"], step["error_reason"]) == (None, "Timeout")
    assert datetime.fromisoformat(step["at"]) - datetime.fromisoformat(begun) == timedelta(seconds=300)


async def test_log(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    assert "no operation yet" in (await cli("log", "demo")).out
    await api.busy(workspace, "STARTING")
    logged = await cli("log", "demo")
    assert logged.out.splitlines()[1].split()[2:5] == ["STARTING", "under", "way"]
    page = (await cli("log", "demo", "--json")).json
    assert [one["operation"] for one in page["items"]] == ["STARTING"]
    assert (await cli("log", "demo", "-n", "0")).code == 2

    def look(columns: int) -> list[str]:
        with Terminal(cli, "log", "demo", columns=columns) as terminal:
            assert terminal.end() == 0
            return terminal.screen.splitlines()

    for columns in (80, 40):
        lines = await asyncio.to_thread(look, columns)
        assert len(lines) == 2, lines
        assert max(map(len, lines)) <= columns
        # Whole columns give way, before what they say is cut off.
        assert ("TOOK" in lines[0], "STARTING" in lines[1]) == (columns == 80, True)
        assert not any("…" in line for line in lines)
    await api.deps.database.execute(
        "UPDATE operations SET outcome = 'FAILED', error_reason = 'ImagePullFailed', attempts = 3, finished_at = now()"
    )
    lines = await asyncio.to_thread(look, 70)
    assert ("FAILED ImagePullFailed" in lines[1], lines[2]) == (True, "  alice created it, to be STANDBY")


async def test_open_prints_the_address(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    opened = await cli("open", "demo", "--print")
    assert opened.out == f"{api.url}/w/{workspace}/\n"
    assert "never started" in opened.err


async def test_open_uses_the_browser_that_there_is(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo")
    seen = cli.config / "seen"
    browser = cli.config / "browser"
    browser.write_text(f"#!/bin/sh\necho $1 > {seen}\n")
    browser.chmod(0o700)

    def look() -> None:
        with Terminal(cli.having(BROWSER=f"{browser} %s"), "open", "demo") as terminal:
            assert terminal.end() == 0

    await asyncio.to_thread(look)
    assert seen.read_text() == f"{api.url}/w/{workspace}/\n"


async def test_open_says_that_there_is_no_browser(cli: Cli, api: Api, alice: Person) -> None:
    """A person at a terminal without windows waits for none; a script takes the address, and nothing is said."""
    workspace = await alice.workspace("demo")

    def look() -> str:
        with Terminal(cli, "open", "demo", columns=200) as terminal:
            assert terminal.end() == 0
            return terminal.screen

    screen = await asyncio.to_thread(look)
    assert screen.startswith(f"{api.url}/w/{workspace}/\n")
    assert "No browser here: open this address." in screen
    assert "No browser" not in (await cli("open", "demo")).err


@pytest.mark.parametrize("words", [("create", "x", "--state", "foo"), ("ls", "--phase", "foo")])
async def test_a_choice_that_is_none_is_said_in_plain_words(cli: Cli, words: tuple[str, ...]) -> None:
    refused = await cli(*words)
    assert refused.code == 2
    assert "'foo' is none of " in refused.err
    assert "Value error" not in refused.err


async def test_rename_and_set(cli: Cli, api: Api, alice: Person) -> None:
    workspace = await alice.workspace("demo", standby_ttl_seconds=60)
    assert (await cli("rename", "demo", "better")).out == "demo is now called better.\n"
    changed = await cli(
        "set",
        "better",
        "--memo",
        "note",
        "--description",
        "",
        "--standby-ttl",
        "default",
        "--archive-ttl",
        "7d",
        "--json",
    )
    ws = changed.json
    assert ws == (await alice("GET", f"/api/v1/workspaces/{workspace}")).json
    assert (ws["name"], ws["memo"], ws["standby_ttl_seconds"], ws["archive_ttl_seconds"]) == (
        "better",
        "note",
        None,
        7 * 86400,
    )
    assert (await cli("set", "better")).code == 2
    assert (await cli("set", "better", "--archive-ttl", "soon")).code == 2
