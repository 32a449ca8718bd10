"""Cookies between a browser and a workspace. Ours never go up; a workspace's stay below its own prefix."""

from collections.abc import Collection

from starter.api.authentication import SECURE_SESSION_COOKIE, SESSION_COOKIE

# On a workspace's own host: who was let in, and who is on the way (see hosted.py).
ENTERED_COOKIE = "codehub-workspace"
ENTERING_COOKIE = "codehub-entering"
# Browsers keep a name that begins so from being set by another host or over plain HTTP.
SECURE = "__Host-"
ENTERED_COOKIES = frozenset({ENTERED_COOKIE, SECURE + ENTERED_COOKIE})
OWN_COOKIES = ENTERED_COOKIES | {SESSION_COOKIE, SECURE_SESSION_COOKIE} | {ENTERING_COOKIE, SECURE + ENTERING_COOKIE}


def without_own(cookie: bytes, whole: bytes | None = None) -> bytes:
    """A Cookie header's value without ours; what is left is byte-identical. Empty: nothing is left.

    It reads names as our own authentication does (parts between semicolons, whatever quotes say, stripped of all that
    Unicode calls a space), so whatever could log somebody in is found. So is a copy of the secret under another name;
    `whole` is all that came in headers of this name, where it came in more than one.
    """
    if b"session" not in (whole or cookie) and b"codehub-" not in (whole or cookie):
        return cookie
    secrets = {value for name, value in map(_name_and_value, (whole or cookie).split(b";")) if name in OWN_COOKIES}
    parts = cookie.split(b";")
    kept = []
    for part in parts:
        name, value = _name_and_value(part)
        if name not in OWN_COOKIES and (not value or value not in secrets):
            kept.append(part)
    if len(kept) == len(parts):
        return cookie
    return b";".join(kept).strip(b" \t") if any(part.strip() for part in kept) else b""


def parts_of(cookie: bytes, names: Collection[str]) -> list[bytes]:
    """Of a Cookie header, what comes under these names, as it came."""
    return [part for part in cookie.split(b";") if _name_and_value(part)[0] in names]


def values_of(cookie: bytes, name: str) -> list[str]:
    """Of a Cookie header, whatever comes under this name: another host may have added one."""
    return [value for found, value in map(_name_and_value, cookie.split(b";")) if found == name]


def confined(set_cookie: bytes, prefix: bytes) -> bytes | None:
    """A workspace's Set-Cookie as the browser may see it; None: not at all.

    Never one of ours: over plain HTTP nothing else keeps a workspace from logging its owner in as somebody else. Never
    one without a name: browsers send it back as it is, and `session=…` is a value like any other. Its Path is below the
    workspace's prefix and its Domain is left out, so that no other workspace and no API request carries it.

    That is all this can do. A script in a workspace's page can set cookies for any path of this host, and so can read
    what another workspace of the same owner has set: only a host name for each workspace keeps those apart. Our own
    cookie is HttpOnly, and over HTTPS `__Host-` keeps scripts from setting it.
    """
    pair, *attributes = set_cookie.split(b";")
    name, has_value, _ = pair.partition(b"=")
    if not has_value or not name.strip() or _stripped(name) in OWN_COOKIES:
        return None
    kept = [pair]
    path = b""
    for attribute in attributes:
        key, _, value = attribute.partition(b"=")
        match key.strip().lower():
            case b"domain":
                continue
            case b"path":
                # The last one counts, and one that is not a path counts as none.
                path = value.strip()
            case _:
                kept.append(attribute)
    if path.startswith(b"/"):
        kept.append(b" Path=" + below(path, prefix))
    return b";".join(kept)


def below(path: bytes, prefix: bytes) -> bytes:
    """A path of the workspace's as the browser knows it. One that has the prefix already keeps it."""
    if path == prefix or path.startswith((prefix + b"/", prefix + b"?", prefix + b"#")):
        return path
    return prefix + path


def _name_and_value(part: bytes) -> tuple[str, str]:
    name, _, value = part.decode("latin-1").partition("=")
    return name.strip().strip('"').strip(), value.strip().strip('"')


def _stripped(name: bytes) -> str:
    return name.decode("latin-1").strip().strip('"').strip()
