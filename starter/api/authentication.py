"""Who is calling: a bearer token, or the session cookie. Works on the ASGI scope, for routes and raw ASGI alike."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response, Security
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.requests import HTTPConnection

from adapters.postgres.sessions import ApiTokens, Identity, Sessions
from starter.api.dependencies import Deps
from starter.api.errors import ApiError, not_found
from starter.api.logins import OpenedSession, hash_secret, new_secret

SESSION_COOKIE = "session"
# Over HTTPS: browsers keep this name from being set by another host, another path or plain HTTP.
SECURE_SESSION_COOKIE = "__Host-session"
TOKEN_PREFIX = "chub_"  # noqa: S105 - not a secret, its beginning

_LONGEST_SECRET = 200


@dataclass(frozen=True, slots=True)
class Authenticator:
    sessions: Sessions
    tokens: ApiTokens

    async def identify(self, connection: HTTPConnection) -> Identity | None:
        """One query. An Authorization header is all that counts where there is one: its cookie is not looked at."""
        if "authorization" in connection.headers:
            secret = bearer_secret(connection)
            return await self.tokens.find(hash_secret(secret)) if secret else None
        secret = session_secret(connection)
        return await self.sessions.find(hash_secret(secret)) if secret else None


def bearer_secret(connection: HTTPConnection) -> str | None:
    scheme, _, secret = connection.headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret.startswith(TOKEN_PREFIX) or len(secret) > _LONGEST_SECRET:
        return None
    return secret


def session_secret(connection: HTTPConnection) -> str | None:
    secret = connection.cookies.get(cookie_name(connection.scope["scheme"]), "")
    return secret if 0 < len(secret) <= _LONGEST_SECRET else None


def new_token() -> str:
    return TOKEN_PREFIX + new_secret()


def cookie_name(scheme: str) -> str:
    return SECURE_SESSION_COOKIE if scheme in {"https", "wss"} else SESSION_COOKIE


def set_session_cookie(request: Request, response: Response, opened: OpenedSession, max_age: int) -> None:
    response.set_cookie(value=opened.secret, max_age=max_age, **_cookie(request))


def clear_session_cookie(request: Request, response: Response) -> None:
    response.delete_cookie(**_cookie(request))


def _cookie(request: Request) -> dict[str, Any]:
    return {
        "key": cookie_name(request.scope["scheme"]),
        "path": "/",
        "secure": request.scope["scheme"] == "https",
        "httponly": True,
        "samesite": "lax",
    }


_cookie_scheme = APIKeyCookie(
    name=SESSION_COOKIE, scheme_name="session", auto_error=False, description="Set by login over plain HTTP."
)
_secure_cookie_scheme = APIKeyCookie(
    name=SECURE_SESSION_COOKIE, scheme_name="secure_session", auto_error=False, description="Set by login over HTTPS."
)
_bearer_scheme = HTTPBearer(
    scheme_name="token", auto_error=False, description=f"An API token; it begins with {TOKEN_PREFIX}"
)


async def _current(
    request: Request,
    deps: Deps,
    # Named for the OpenAPI document; `identify` reads them.
    _session: Annotated[Any, Security(_cookie_scheme)],
    _secure_session: Annotated[Any, Security(_secure_cookie_scheme)],
    _token: Annotated[Any, Security(_bearer_scheme)],
) -> Identity:
    identity = await Authenticator(deps.sessions, deps.tokens).identify(request)
    if identity is None:
        raise ApiError(401, "unauthenticated", "Log in first: there is no session or token here that is valid.")
    request.scope["codehub.user"] = identity.user.username
    return identity


Current = Annotated[Identity, Depends(_current)]


async def _current_session(identity: Current) -> Identity:
    if not identity.by_session:
        raise ApiError(403, "session_required", "An API token can't do this: log in with the password.")
    return identity


async def _admin(identity: Current) -> Identity:
    if not identity.user.is_admin:
        raise ApiError(403, "admin_only", "Only an admin can do this.")
    return identity


async def _admin_of_it(identity: Current) -> Identity:
    if not identity.user.is_admin:
        raise not_found()
    return identity


CurrentSession = Annotated[Identity, Depends(_current_session)]
Admin = Annotated[Identity, Depends(_admin)]
# For routes that name one user: to anybody else there is no such user.
AdminOfIt = Annotated[Identity, Depends(_admin_of_it)]
