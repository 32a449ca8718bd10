"""Who is calling: a bearer token, or the session cookie. Works on the ASGI scope, for routes and raw ASGI alike."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request, Response, Security
from fastapi.security import APIKeyCookie, HTTPBearer
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from adapters.postgres.actor import act_as
from adapters.postgres.sessions import ApiTokens, Identity, Sessions
from domain.audit import Actor, ActorKind
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
        """One query."""
        token = bearer_secret(connection.headers)
        if token is not None:
            return await self.tokens.find(hash_secret(token))
        secret = session_secret(connection)
        return await self.sessions.find(hash_secret(secret)) if secret else None

    async def still(self, identity: Identity) -> Identity | None:
        """None: what it was known by is good no more."""
        known = self.sessions if identity.by_session else self.tokens
        return await known.find(identity.token_hash)


def bearer_secret(headers: Headers) -> str | None:
    """An API token of ours. Whatever else a bearer shows proves nothing here."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    secret = secret.strip()
    if scheme.lower() != "bearer" or not secret.startswith(TOKEN_PREFIX) or len(secret) > _LONGEST_SECRET:
        return None
    return secret


def session_secret(connection: HTTPConnection) -> str | None:
    """An Authorization header is all that counts where there is one: the cookie beside it is not looked at. So what
    is let in for its token (see same_origin) never acts by the cookie.
    """
    if "authorization" in connection.headers:
        return None
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


def actor_of(identity: Identity, request_id: str | None = None, kind: ActorKind | None = None) -> Actor:
    user = identity.user
    usual = ActorKind.ADMIN if user.is_admin else ActorKind.USER
    return Actor(kind or usual, user.username, user.id, request_id=request_id)


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
    act_as(actor_of(identity, request.scope.get("codehub.request_id")))
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
