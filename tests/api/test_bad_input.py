import json
from collections.abc import AsyncIterator
from typing import Any

from starter.api.body_limit import BodyLimitMiddleware
from tests.api.world import PASSWORD, Api, Person

PATH = "/api/v1/workspaces"
MIB = 1024 * 1024


CONTROLLERS = (
    *("id", "owner_user_id", "phase", "operation", "conditions", "archive_key", "error_reason", "error_count"),
    *("progress", "created_at", "updated_at", "last_access_at", "deleted_at", "node", "endpoint", "op_id", "x"),
)
BAD_VALUES: dict[str, list[Any]] = {
    "name": [
        "",
        " ",
        " x",
        "x ",
        "x" * 101,
        "a\nb",
        "a\tb",
        "x\n",
        "x\x85",
        "a\u2028b",
        "\ufeffx",
        "nul\x00",
        "\ud800",
        None,
        7,
        [],
        {},
        True,
    ],
    "description": ["x" * 1001, "nul\x00", "\udfff", None, 7, ["x"]],
    "desired_state": ["DELETED", "PENDING", "running", "", None, 3, ["RUNNING"]],
    "standby_ttl_seconds": [-1, 1.5, "60", True, 2**31, 10**30, float("inf"), [], ""],
    "archive_ttl_seconds": [-1],
}
BAD_IMAGES: list[Any] = ["", " ", "a b", "x\n", "-x", "$(reboot)", "ide;rm", "x" * 513, "im\x00age", 7]
MALFORMED = {
    "open": b"{",
    "no json": b"nonsense",
    "trailing": b'{"name": "x"} trailing',
    "utf-16": b"\xff\xfe",
    "bad utf-8": b'{"name": "\xff"}',
    "deep list": b"[" * 100_000,
    "deep object": b'{"name":' * 50_000,
    "long number": b'{"standby_ttl_seconds": ' + b"9" * 10_000 + b"}",
    "nul": b"\x00",
}


async def test_mass_assignment(alice: Person) -> None:
    """What the controller writes can't be written by a request, and an unknown field is an error, not ignored."""
    one = await alice.workspace()
    for field in CONTROLLERS:
        for method, path, body in (("POST", PATH, {"name": "two"}), ("PATCH", f"{PATH}/{one}", {})):
            answer = await alice(method, path, {**body, field: "x"})
            assert (answer.status, answer.code, answer.message) == (422, "invalid", f"{field}: unknown field")
    assert (await alice("GET", PATH)).json["total"] == 1


async def test_image_and_memo_are_not_everywhere(alice: Person) -> None:
    """An image can't be patched, a memo can't be given at create: SPEC 12 lists the fields of each."""
    one = await alice.workspace()
    assert (await alice("PATCH", f"{PATH}/{one}", {"image_ref": "other"})).status == 422
    assert (await alice("POST", PATH, {"name": "two", "memo": "x"})).status == 422


async def test_bad_values(alice: Person) -> None:
    """A value of the wrong type or out of bounds is 422, and the message names the field; nothing is made."""
    one = await alice.workspace()
    for field, value in ((field, value) for field, values in BAD_VALUES.items() for value in values):
        for method, path, body in (("POST", PATH, {"name": "two"}), ("PATCH", f"{PATH}/{one}", {})):
            answer = await alice(method, path, {**body, field: value})
            assert (answer.status, answer.code) == (422, "invalid"), (method, field, value)
            assert answer.message.startswith(f"{field}: "), (method, field, value)
    for image in BAD_IMAGES:
        assert (await alice("POST", PATH, {"name": "two", "image_ref": image})).status == 422, image
    assert (await alice("GET", PATH)).json["total"] == 1


async def test_messages_say_what_would_be_right(alice: Person) -> None:
    """In words, not in regular expressions."""
    answer = await alice("POST", PATH, {"name": "x ", "image_ref": "a b", "description": "\x00"})
    assert answer.message == (
        "name: must be one line, without blanks at its ends and without control characters; "
        "description: must not contain a NUL character; "
        "image_ref: must be a Docker image reference, such as registry.example/team/ide:1.2"
    )


async def test_malformed_bodies(alice: Person) -> None:
    """A body that is not JSON is 400 in our own words."""
    for kind, body in MALFORMED.items():
        answer = await alice.api("POST", PATH, data=body, Cookie=f"session={alice.secret}")
        assert (answer.status, answer.code) == (400, "malformed_json"), kind


async def test_bodies_that_are_no_object(alice: Person) -> None:
    """JSON that isn't an object with a name is 422."""
    for body in (b"", b"null", b"[]", b'"x"', b"1", b"NaN", b"{}"):
        answer = await alice.api("POST", PATH, data=body, Cookie=f"session={alice.secret}")
        assert (answer.status, answer.code) == (422, "invalid"), body


async def test_odd_field_names(alice: Person) -> None:
    """A name that can't be written down in UTF-8, or is very long, is quoted safely."""
    for name in ("\ud800", "x" * 50_000, "nul\x00", "<script>"):
        answer = await alice("POST", PATH, {"name": "one", name: 1})
        assert (answer.status, answer.code) == (422, "invalid")
        assert len(answer.body) < 1000


async def test_ids_that_are_none(alice: Person) -> None:
    """An id that can't be one names nothing: 404 on every verb."""
    verbs = (("GET", ""), ("PATCH", ""), ("DELETE", ""), ("POST", "/recover"), ("GET", "/operations"))
    for odd in ("1", "x" * 5000, "%00", "%ff", "..%2f..", "';--", "%F0%9F%A5%8A", "{}"):
        for method, path in verbs:
            answer = await alice(method, f"{PATH}/{odd}{path}", {} if method == "PATCH" else None)
            assert (answer.status, answer.code) == (404, "not_found"), (method, odd, path)


async def test_unknown_paths_and_verbs(api: Api, alice: Person) -> None:
    """404 and 405 have the shape of every error; Allow names every verb of the path."""
    for path in ("/nowhere", "/api/v1/workspaces/", "/api/v2/workspaces", "/docs", "/redoc", "/openapi.json"):
        answer = await alice("GET", path)
        assert (answer.status, answer.code) == (404, "not_found"), path
    one = await alice.workspace()
    for path, allowed in ((PATH, "GET, POST"), (f"{PATH}/{one}", "DELETE, GET, PATCH"), ("/api/v1/login", "POST")):
        answer = await alice("PUT", path, {})
        assert (answer.status, answer.code, answer.headers["Allow"]) == (405, "method_not_allowed", allowed)


async def test_only_json(alice: Person) -> None:
    """Other media types are 415, also where no other site is involved."""
    one = await alice.workspace()
    for kind in ("text/plain", "application/xml", "application/problem+json", "application/jsonx"):
        answer = await alice("PATCH", f"{PATH}/{one}", {"memo": "x"}, Content_Type=kind)
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
    spelled = await alice("PATCH", f"{PATH}/{one}", {"memo": "x"}, Content_Type="Application/JSON; charset=utf-8")
    assert spelled.status == 200


async def test_the_largest_body(alice: Person) -> None:
    """1 MiB is read (and then judged), one byte more is 413."""
    padding = MIB - len(json.dumps({"name": "one", "x": ""}))
    fits = await alice("POST", PATH, {"name": "one", "x": "x" * padding})
    assert (fits.status, fits.code) == (422, "invalid")
    large = await alice("POST", PATH, {"name": "one", "x": "x" * (padding + 1)})
    assert (large.status, large.code) == (413, "body_too_large")


async def test_large_bodies_without_a_length(alice: Person) -> None:
    """A chunked body is counted as it comes and cut off at 1 MiB: what follows is not read."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        for _ in range(1000):
            sent += 64 * 1024
            yield b" " * (64 * 1024)

    answer = await alice.api("POST", PATH, data=endless(), Cookie=f"session={alice.secret}")

    assert (answer.status, answer.code) == (413, "body_too_large")
    assert sent < 32 * MIB


async def test_a_length_that_is_announced(api: Api) -> None:
    """A body that is announced as too large is refused before a byte of it is sent."""
    headers = {"Host": api.raw.host, "Content-Type": "application/json", "Content-Length": str(10 * MIB)}
    answer = await api.raw.send("POST", "/api/v1/login", headers)
    assert (answer.status, answer.code, answer.get("connection")) == (413, "body_too_large", "close")


async def test_a_body_that_does_not_come(api: Api) -> None:
    """Is waited for, but not for ever: 408, and the connection ends."""
    for one in api.app.user_middleware:
        if getattr(one.cls, "__name__", "") == BodyLimitMiddleware.__name__:
            one.kwargs["seconds"] = 0.2
    api.app.middleware_stack = api.app.build_middleware_stack()
    headers = {"Host": api.raw.host, "Content-Type": "application/json", "Content-Length": "10"}
    answer = await api.raw.send("POST", "/api/v1/login", headers, b"{")
    assert (answer.status, answer.code, answer.get("connection")) == (408, "request_timeout", "close")


async def test_bad_logins(api: Api) -> None:
    """Wrong types and characters that no table holds are 422 at login too, never 500."""
    for body in (
        {"username": "x\x00", "password": "y"},
        {"username": "x", "password": "\ud800"},
        {"username": "\ud800", "password": "y"},
        {"username": ["x"], "password": "y"},
        {"username": "x", "password": ""},
        {"username": "x", "password": "y" * 1025},
        {"username": "x"},
        {"username": "x", "password": "y", "remember": True},
    ):
        answer = await api("POST", "/api/v1/login", body)
        assert (answer.status, answer.code) == (422, "invalid"), body
    nul = await api("POST", "/api/v1/login", {"username": "x", "password": "y\x00"})
    assert nul.status == 401


async def test_a_rejected_password_is_not_repeated(admin: Person) -> None:
    """What was wrong with a password is said without it."""
    answer = await admin("POST", "/api/v1/users", {"username": "x", "password": "s3cret!"})
    assert (answer.status, answer.code) == (422, "invalid")
    assert "s3cret" not in answer.body.decode()


async def test_odd_cookies(api: Api) -> None:
    """A cookie that makes no sense is no session."""
    for cookie in ("session=", "session=" + "x" * 5000, 'session="\xff"', "session=a=b; session=c", ";"):
        assert (await api("GET", "/api/v1/session", Cookie=cookie)).status == 401, cookie


async def test_long_texts_are_kept(alice: Person) -> None:
    """The longest texts that are allowed come back as they were, in characters and not in bytes."""
    one = await alice.workspace("ä" * 100, description="🥊" * 1000)
    memo = "行\r\n\t" * 2500
    answer = await alice("PATCH", f"{PATH}/{one}", {"memo": memo})
    assert (answer.status, answer.json["memo"], answer.json["description"]) == (200, memo, "🥊" * 1000)
    assert (await alice.api.login("nobody", PASSWORD)).status == 401
