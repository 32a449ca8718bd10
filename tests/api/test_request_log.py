import re

import structlog
from structlog.testing import capture_logs

from tests.api.world import PASSWORD, Api, Person

GENERATED = re.compile(r"[0-9a-f]{32}")


async def test_request_ids(api: Api) -> None:
    """A request id that makes sense is taken over; any other is replaced."""
    assert (await api("GET", "/health/live", X_Request_Id="trace-1.a_B")).headers["X-Request-Id"] == "trace-1.a_B"
    for odd in ("", "x" * 65, "two words", "ümlaut", "a;b"):
        assert GENERATED.fullmatch((await api("GET", "/nowhere", X_Request_Id=odd)).headers["X-Request-Id"]), odd


async def test_the_log(api: Api, alice: Person) -> None:
    """One line per request with its id, status, time, user and address."""
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        await alice("GET", "/api/v1/workspaces?phase=RUNNING", X_Request_Id="trace-1")
    (line,) = [line for line in lines if line["event"] == "request"]
    assert (line["method"], line["path"], line["status"]) == ("GET", "/api/v1/workspaces", 200)
    assert (line["request_id"], line["user"], line["address"]) == ("trace-1", "alice", "127.0.0.1")
    assert line["ms"] >= 0


async def test_an_error_inside(api: Api, alice: Person) -> None:
    """A failure of ours is 500 without its insides; the log has them under the id that the answer names."""
    await api.deps.database.execute("ALTER TABLE workspaces RENAME TO elsewhere")
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        answer = await alice("GET", "/api/v1/workspaces", X_Request_Id="trace-1")
    assert (answer.status, answer.code) == (500, "internal")
    assert "trace-1" in answer.message
    assert "workspaces" not in answer.body.decode()
    (line,) = [line for line in lines if line["event"] == "request_failed"]
    assert line["request_id"] == "trace-1"
    assert "UndefinedTableError" in line["exception"]
    assert (await api("GET", "/health/live")).headers["X-Frame-Options"] == "DENY"


async def test_no_secrets_in_the_log(api: Api, alice: Person, admin: Person) -> None:
    """Passwords, session ids and tokens appear in no line, also when something breaks (PROMISE 35)."""
    with capture_logs() as lines:
        answer = await api.login("alice")
        await api.login("alice", "canary-wrong-password")
        session = answer.headers["Set-Cookie"].partition("=")[2].partition(";")[0]
        token = (await alice("POST", "/api/v1/tokens", {"name": "t"})).json["token"]
        await api("GET", "/api/v1/session?token=canary-query", Authorization=f"Bearer {token}")
        await admin("POST", "/api/v1/users", {"username": "x", "password": "canary-new-password"})
        await api.deps.database.execute("ALTER TABLE users RENAME TO elsewhere")
        await api.login("alice")
        await api("GET", "/api/v1/session", Authorization=f"Bearer {token}")
    text = str(lines)
    assert "request_failed" in text
    for secret in (PASSWORD, session, token, alice.secret, "canary"):
        assert secret not in text
