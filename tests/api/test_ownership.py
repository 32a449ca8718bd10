"""PROMISE 32. The routes are asked of the application itself, so that a new one can't be forgotten."""

import re

from fastapi.routing import iter_route_contexts

from tests.api.world import NOBODY, Api, Person

OPEN = {
    ("POST", "/api/v1/login"),
    ("POST", "/api/v1/logout"),
    ("GET", "/api/openapi.json"),
    ("HEAD", "/api/openapi.json"),
    ("GET", "/health/live"),
    ("GET", "/health/ready"),
    ("GET", "/health/coordinator"),
}
ADMINS = "/api/v1/admin/"
# Enough for a body to be accepted, so that it isn't the body that is refused.
BODIES = {
    "/api/v1/workspaces": {"name": "x"},
    "/api/v1/users": {"username": "x", "password": "long enough"},
    "/api/v1/tokens": {"name": "x"},
    "/api/v1/password": {"old_password": "x", "new_password": "long enough"},
}


def _routes(api: Api) -> list[tuple[str, str]]:
    found = iter_route_contexts(api.app.routes)
    listed = sorted((method, str(route.path)) for route in found for method in route.methods or ())
    # The dashboard is the same for everybody: see tests/web.
    return [(method, path) for method, path in listed if path != "/" and not path.startswith("/assets/")]


async def _objects_of(person: Person) -> dict[str, str]:
    """One of everything that a path can name."""
    token = await person("POST", "/api/v1/tokens", {"name": "hers"})
    return {
        "workspace_id": await person.workspace(),
        "token_id": token.json["id"],
        "user_id": person.id,
        # Everybody's, and only an admin's business.
        "node": "local",
    }


async def test_every_route_is_known_to_this_test(api: Api) -> None:
    """Every parameter of every path is an object that the tests below make."""
    named = {name for _, path in _routes(api) for name in re.findall(r"{(\w+)", path)}
    assert named == {"workspace_id", "token_id", "user_id", "node"}


async def test_another_users_object_is_not_there(api: Api, alice: Person, bob: Person) -> None:
    """Every route and verb that names another user's object answers exactly as if there were none."""
    hers = await _objects_of(alice)
    checked = 0
    for method, path in _routes(api):
        if "{" not in path:
            continue
        theirs = await bob(method, path.format(**hers), {} if method == "PATCH" else None)
        nobody = await bob(method, path.format(**dict.fromkeys(hers, NOBODY)), {} if method == "PATCH" else None)
        assert (theirs.status, theirs.code) == (404, "not_found"), (method, path)
        assert theirs.body == nobody.body, (method, path)
        checked += 1
    assert checked >= 8
    assert (await alice("GET", f"/api/v1/workspaces/{hers['workspace_id']}")).json["desired_state"] == "STANDBY"
    assert (await alice("GET", "/api/v1/tokens")).json["total"] == 1


async def test_an_admin_is_another_user_too(api: Api, alice: Person, admin: Person) -> None:
    """On every route that is not an admin's: there, nobody else's workspaces or tokens are to be seen."""
    hers = await _objects_of(alice)
    checked = 0
    for method, path in _routes(api):
        if ("{workspace_id}" in path or "{token_id}" in path) and not path.startswith(ADMINS):
            answer = await admin(method, path.format(**hers), {} if method == "PATCH" else None)
            assert answer.status == 404, (method, path)
            checked += 1
    assert checked >= 8
    assert (await admin("GET", "/api/v1/workspaces")).json == {"items": [], "total": 0}


async def test_what_an_admin_may_do_with_anybodys_workspace(api: Api, alice: Person, admin: Person) -> None:
    """Look at it, read why it is so, recover it, delete it, and nothing else. Each of these is on a route of its own:
    to a user who is no admin there is none, also of their own workspace."""
    hers = await _objects_of(alice)
    routes = [(method, path) for method, path in _routes(api) if path.startswith(ADMINS) and "{workspace_id}" in path]
    assert routes == [
        ("DELETE", "/api/v1/admin/workspaces/{workspace_id}"),
        ("GET", "/api/v1/admin/workspaces/{workspace_id}"),
        ("GET", "/api/v1/admin/workspaces/{workspace_id}/explain"),
        ("GET", "/api/v1/admin/workspaces/{workspace_id}/operations"),
        ("POST", "/api/v1/admin/workspaces/{workspace_id}/recover"),
    ]
    # The deletion, which comes first, last: it leaves nothing to look at.
    for method, path in [*routes[1:], routes[0]]:
        assert (await alice(method, path.format(**hers))).code == "not_found", (method, path)
        answer = await admin(method, path.format(**hers))
        assert answer.status == {"DELETE": 204, "GET": 200, "POST": 409}[method], (method, path)


async def test_nobody_gets_nothing(api: Api, alice: Person) -> None:
    """Without a session, with a made-up one, or with a made-up token, every other route answers 401."""
    hers = await _objects_of(alice)
    for method, path in _routes(api):
        if (method, path) in OPEN:
            continue
        for headers in ({}, {"Cookie": "session=made-up"}, {"Authorization": "Bearer chub_made-up"}):
            body = BODIES.get(path, {}) if method != "GET" else None
            answer = await api(method, path.format(**hers), body, **headers)
            assert (answer.status, answer.code) == (401, "unauthenticated"), (method, path)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


async def test_users_are_for_admins(alice: Person) -> None:
    """The collection is a known place that is closed to others."""
    assert (await alice("GET", "/api/v1/users")).code == "admin_only"
    made = await alice("POST", "/api/v1/users", {"username": "x", "password": "long enough", "is_admin": True})
    assert (made.status, made.code) == (403, "admin_only")


async def test_the_admins_view_is_for_admins(alice: Person, admin: Person) -> None:
    """It shows whose and how; not what people write into theirs."""
    await alice.workspace("hers", description="private")
    for path in ("/api/v1/admin/workspaces", "/api/v1/admin/overview", "/api/v1/admin/health"):
        assert (await alice("GET", path)).code == "admin_only"
    shown = (await admin("GET", "/api/v1/admin/workspaces")).json
    assert [(one["owner"], one["name"]) for one in shown["items"]] == [("alice", "hers")]
    assert "private" not in str(shown)
    assert (await admin("GET", "/api/v1/admin/overview")).json["phases"]["PENDING"] == 1
