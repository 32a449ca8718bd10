"""`/api/v1/tokens`: one's own API tokens, for the command line and scripts."""

from datetime import datetime
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, Field

from adapters.postgres.sessions import ApiToken
from starter.api.authentication import Current, CurrentSession, new_token
from starter.api.dependencies import Deps
from starter.api.errors import answers, not_found
from starter.api.fields import Name, RequestBody
from starter.api.logins import hash_secret

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])


class CreateToken(RequestBody):
    name: Name


class TokenBody(BaseModel):
    id: UUID
    name: str
    created_at: datetime
    last_used_at: datetime | None

    @classmethod
    def of(cls, token: ApiToken) -> "TokenBody":
        return cls.model_validate(token, from_attributes=True)


class CreatedToken(TokenBody):
    token: str = Field(description="The secret, shown this once.")


class TokenList(BaseModel):
    items: list[TokenBody]
    total: int


@router.post("", status_code=201, responses=answers(400, 401, 403, 422))
async def create_token(body: CreateToken, deps: Deps, current: CurrentSession) -> CreatedToken:
    """Needs a login session: a token that leaked can't make itself successors."""
    secret = new_token()
    token = await deps.tokens.create(current.user.id, body.name, hash_secret(secret))
    return CreatedToken(**TokenBody.of(token).model_dump(), token=secret)


@router.get("", responses=answers(401))
async def list_tokens(deps: Deps, current: Current) -> TokenList:
    tokens = await deps.tokens.of_user(current.user.id)
    return TokenList(items=[TokenBody.of(token) for token in tokens], total=len(tokens))


@router.delete("/{token_id}", status_code=204, responses=answers(401, 403, 404))
async def revoke_token(token_id: UUID, deps: Deps, current: Current) -> None:
    """At once: the next request with it is refused."""
    if not await deps.tokens.revoke(current.user.id, str(token_id)):
        raise not_found()
