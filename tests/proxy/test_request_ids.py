"""By which id a request through the proxy is found in the log."""

import re

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from tests.ports import free_port
from tests.proxy.world import Person, Workspace, World, reply

GENERATED = re.compile(r"[0-9a-f]{32}")


async def test_a_request_is_found_by_its_id(world: World, alice: Person) -> None:
    """What is said of it has the id that it came with, and so has the answer."""
    at = f"/w/{await world.row(alice, f'127.0.0.1:{free_port()}')}/"
    with capture_logs(processors=[merge_contextvars]) as lines:
        answer = await world.get(at, alice, X_Request_Id="trace-1.a_B")
    assert (answer.status, answer.get("x-request-id")) == (502, "trace-1.a_B")
    (line,) = [line for line in lines if line["event"] == "workspace_unreachable"]
    assert line["request_id"] == "trace-1.a_B"


async def test_each_request_of_a_connection_has_its_own(world: World, alice: Person) -> None:
    """Also when the one before has left its id behind, and when the next is the API's."""
    at = f"/w/{await world.row(alice, f'127.0.0.1:{free_port()}')}/"
    asked = [(at, "X-Request-Id: first\r\n"), (at, ""), ("/nowhere", "X-Request-Id: third\r\n"), ("/nowhere", "")]
    requests = [
        f"GET {path} HTTP/1.1\r\nHost: {world.host}\r\nCookie: {alice.cookie}\r\n{more}"
        f"{'Connection: close' + chr(13) + chr(10) if number == len(asked) else ''}\r\n"
        for number, (path, more) in enumerate(asked, 1)
    ]
    with capture_logs(processors=[merge_contextvars]) as lines:
        async with world.connect() as (reader, writer):
            writer.write("".join(requests).encode())
            answered = await reader.read()
    told = re.findall(rb"(?i)x-request-id: (\S+)", answered)
    said = [line["request_id"] for line in lines if line["event"] in {"workspace_unreachable", "request"}]
    assert said == [one.decode() for one in told]
    assert (said[0], said[2]) == ("first", "third")
    assert GENERATED.fullmatch(said[1])
    assert GENERATED.fullmatch(said[3])
    assert said[1] != said[3]


@pytest.mark.parametrize("odd", ["", "x" * 65, "two words", "\xfcmlaut", "a;b", "a\tb", "a, b"])
async def test_an_odd_one_is_replaced(world: World, alice: Person, odd: str) -> None:
    """As the API does: what could not be searched for is no id."""
    answer = await world.get("/w/nothing/", alice, X_Request_Id=odd)
    assert answer.status == 404
    assert GENERATED.fullmatch(answer.get("x-request-id") or "")


@pytest.mark.parametrize("between", ["\n", "\r", "\r\n ", "\x0b", "\x00", "\x85"])
async def test_nobody_writes_lines_of_their_own(world: World, alice: Person, between: str) -> None:
    """Neither into the log nor into the head of an answer: such a request is refused, or gets an id of ours."""
    at = f"/w/{await world.row(alice, f'127.0.0.1:{free_port()}')}/"
    head = f"GET {at} HTTP/1.1\r\nHost: {world.host}\r\nCookie: {alice.cookie}\r\n"
    with capture_logs(processors=[merge_contextvars]) as lines:
        answer = reply(await world.raw(f"{head}X-Request-Id: a{between}Forged: b\r\n\r\n".encode("latin-1")))
    assert answer.status in {400, 502}
    assert answer.get("forged") is None
    assert "Forged" not in f"{answer.headers}{lines}"


async def test_the_audit_log_has_it(world: World, alice: Person) -> None:
    """Who woke a workspace by opening it is found by the request that did."""
    workspace_id = await world.row(alice, phase="STANDBY", desired_state="STANDBY")
    with capture_logs(processors=[merge_contextvars]) as lines:
        await world.open(f"/w/{workspace_id}/", alice, X_Request_Id="visit-1")
    changes, _ = await world.deps.audit.page(limit=1, offset=0, subject_id=workspace_id)
    assert (changes[0].action, changes[0].actor_kind, changes[0].request_id) == (
        "desired_state",
        "auto-wake",
        "visit-1",
    )
    (line,) = [line for line in lines if line["event"] == "woken_by_visit"]
    assert (line["request_id"], line["workspace"]) == ("visit-1", workspace_id)


async def test_what_is_passed_on_is_the_workspaces_own(world: World, alice: Person, ws: Workspace, at: str) -> None:
    """The workspace gets the header as it came, and an answer that is not codehub's is not added to."""
    answer = await world.get(at, alice, X_Request_Id="its own business; really")
    assert (answer.status, answer.get("x-request-id")) == (200, None)
    assert ws.header("x-request-id") == ["its own business; really"]
