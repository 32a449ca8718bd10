"""`/api/v1/login`, `/logout`, `/session`, `/password`: one's own way in and out."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, StrictBool, StringConstraints

from adapters.postgres.sessions import Identity
from starter.api.authentication import (
    Current,
    clear_session_cookie,
    session_secret,
    set_session_cookie,
)
from starter.api.dependencies import Deps
from starter.api.errors import ApiError, answers
from starter.api.fields import NO_NUL, Password, RequestBody
from starter.api.forwarded import client_address
from starter.api.logins import BadCredentials, hash_secret
from starter.api.users import UserBody

router = APIRouter(prefix="/api/v1", tags=["session"])

# Wider than what a user may have: a wrong one is answered like any other wrong one.
GivenUsername = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
GivenPassword = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class Login(RequestBody):
    username: GivenUsername
    password: GivenPassword


class ChangePassword(RequestBody):
    old_password: GivenPassword
    new_password: Password
    revoke_tokens: StrictBool = False


class SessionBody(BaseModel):
    user: UserBody
    expires_at: datetime | None

    @classmethod
    def of(cls, identity: Identity) -> "SessionBody":
        return cls(user=UserBody.of(identity.user), expires_at=identity.expires_at)


@router.post("/login", responses=answers(400, 401, 403, 422, 429))
async def login(body: Login, request: Request, response: Response, deps: Deps) -> SessionBody:
    """Sets the session cookie. 401 `bad_credentials`; 429 `too_many_attempts` after 5 failures, right or wrong."""
    replaced = session_secret(request)
    opened = await deps.logins.log_in(
        body.username,
        body.password,
        client_address(request.scope),
        replaced=hash_secret(replaced) if replaced else None,
    )
    request.scope["codehub.user"] = opened.identity.user.username
    set_session_cookie(request, response, opened, int(deps.config.session_ttl.total_seconds()))
    return SessionBody.of(opened.identity)


@router.post("/logout", status_code=204, responses=answers(403))
async def logout(request: Request, response: Response, deps: Deps) -> None:
    """Ends the session of the cookie. Without one there is nothing to end, and that is no error."""
    secret = session_secret(request)
    if secret is not None:
        await deps.sessions.close(hash_secret(secret))
    clear_session_cookie(request, response)


@router.get("/session", responses=answers(401))
async def get_session(current: Current) -> SessionBody:
    """Who is calling. `expires_at` is null for an API token."""
    return SessionBody.of(current)


@router.post("/password", status_code=204, responses=answers(400, 401, 403, 409, 422, 429))
async def change_password(body: ChangePassword, request: Request, deps: Deps, current: Current) -> None:
    """Ends every other session of the user; with `revoke_tokens` every other API token too. 403 `wrong_password`."""
    try:
        credentials = await deps.logins.check(current.user.username, body.old_password, client_address(request.scope))
    except BadCredentials:
        # Not 401: the session is fine.
        raise ApiError(403, "wrong_password", "The old password is wrong.") from None
    changed = await deps.accounts.change_password(
        credentials,
        await deps.passwords.hash(body.new_password),
        kept=current.token_hash,
        revoke_tokens=body.revoke_tokens,
    )
    if not changed:
        raise ApiError(409, "password_changed", "The password was changed by somebody else in this moment.")
