"""Changes as JSON: what, when, who and why."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from pydantic import BaseModel, Field

from domain.audit import ActorKind, Change, in_words


class CauseBody(BaseModel):
    """A change, and who made it."""

    at: datetime
    action: str
    actor_kind: ActorKind
    actor: str | None
    reason: str | None
    words: str = Field(description="All of it in a sentence.")

    @classmethod
    def of(cls, change: Change, phase: str | None = None) -> Self:
        fields = {name: getattr(change, name) for name in cls.model_fields if hasattr(change, name)}
        return cls.model_validate({**fields, "words": in_words(change, phase)})


class ChangeBody(CauseBody):
    subject: str
    subject_id: UUID
    changes: dict[str, Any] = Field(description="`{column: [before, after]}`; of long texts only that they changed.")
    request_id: str | None


class ChangePage(BaseModel):
    items: list[ChangeBody]
    total: int
