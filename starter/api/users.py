"""`/api/v1/users`: admins make users, disable them and reset their passwords. There is no sign-up."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, StrictBool

from adapters.postgres.accounts import User, UserChange
from domain.model import UserId
from starter.api.authentication import Admin, AdminOfIt
from starter.api.dependencies import Deps
from starter.api.errors import answers
from starter.api.fields import PageQuery, Password, RequestBody, Username

router = APIRouter(prefix="/api/v1/users", tags=["users"])


class CreateUser(RequestBody):
    username: Username
    password: Password
    is_admin: StrictBool = False


class PatchUser(RequestBody):
    """What is not given stays as it is."""

    is_admin: StrictBool = Field(default_factory=bool)
    disabled: StrictBool = Field(default_factory=bool, description="A disabled user can't log in, nor can its tokens.")
    password: Password = Field(default_factory=str, description="Ends every session of the user, and any lockout.")
    revoke_tokens: StrictBool = Field(default_factory=bool, description="Revokes every API token of the user.")


class UserBody(BaseModel):
    id: UUID
    username: str
    is_admin: bool
    created_at: datetime
    disabled_at: datetime | None

    @classmethod
    def of(cls, user: User) -> "UserBody":
        return cls.model_validate(user, from_attributes=True)


class UserPage(BaseModel):
    items: list[UserBody]
    total: int


@router.post("", status_code=201, responses=answers(400, 401, 403, 409, 422))
async def create_user(body: CreateUser, deps: Deps, _: Admin) -> UserBody:
    """409 `username_taken`."""
    hashed = await deps.passwords.hash(body.password)
    return UserBody.of(await deps.accounts.create(body.username, hashed, is_admin=body.is_admin))


@router.get("", responses=answers(401, 403, 422))
async def list_users(query: Annotated[PageQuery, Query()], deps: Deps, _: Admin) -> UserPage:
    users, total = await deps.accounts.page(limit=query.limit, offset=query.offset)
    return UserPage(items=[UserBody.of(user) for user in users], total=total)


@router.get("/{user_id}", responses=answers(401, 404))
async def get_user(user_id: UUID, deps: Deps, _: AdminOfIt) -> UserBody:
    return UserBody.of(await deps.accounts.get(UserId(str(user_id))))


@router.patch("/{user_id}", responses=answers(400, 401, 403, 404, 409, 422))
async def patch_user(user_id: UUID, body: PatchUser, deps: Deps, _: AdminOfIt) -> UserBody:
    """409 `last_admin`: the last one can't be disabled or made an ordinary user."""
    given = body.model_fields_set
    change = UserChange(
        is_admin=body.is_admin if "is_admin" in given else None,
        disabled=body.disabled if "disabled" in given else None,
        password_hash=await deps.passwords.hash(body.password) if "password" in given else None,
        revoke_tokens=body.revoke_tokens,
    )
    return UserBody.of(await deps.accounts.change(UserId(str(user_id)), change))
