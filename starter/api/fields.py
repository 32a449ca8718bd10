"""What fields of requests may hold. Each rule is in the OpenAPI document, and each is the table's own or stricter."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

# PostgreSQL's text can't hold NUL.
NO_NUL = r"^[^\x00]*$"
# \s is not the same everywhere: what it leaves open is named, so that every reader of the document agrees.
_LINE = (
    r"^[^\s\ufeff\x00-\x1f\x7f-\x9f]"
    r"(?:[^\x00-\x1f\x7f-\x9f\u2028\u2029]*[^\s\ufeff\x00-\x1f\x7f-\x9f])?$"
)
_IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._/:@-]*$"
_USERNAME = r"^[a-z0-9][a-z0-9._-]{0,62}$"
_KEY = r"^[\x21-\x7e]+$"
_TEN_YEARS = 10 * 365 * 86400


def _number(value: object) -> object:
    """JSON's integers, of which 60.0 is one; not what Python takes for numbers besides."""
    if isinstance(value, bool | str):
        raise ValueError("Input should be a valid integer")  # noqa: TRY004 - pydantic wants this one
    return value


Name = Annotated[
    str,
    StringConstraints(min_length=1, max_length=100, pattern=_LINE),
    Field(description="One line, without blanks at its ends."),
]
Description = Annotated[str, StringConstraints(max_length=1000, pattern=NO_NUL)]
Memo = Annotated[str, StringConstraints(max_length=10_000, pattern=NO_NUL)]
ImageRef = Annotated[
    str,
    StringConstraints(min_length=1, max_length=512, pattern=_IMAGE),
    Field(description="A Docker image reference."),
]
TtlSeconds = Annotated[
    int,
    Field(ge=0, le=_TEN_YEARS, description="Seconds; 0 is never; null is the installation's default."),
    BeforeValidator(_number),
]
Username = Annotated[str, StringConstraints(pattern=_USERNAME)]
Password = Annotated[str, StringConstraints(min_length=8, max_length=1024)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=_KEY)]

PATTERNS_IN_WORDS = {
    NO_NUL: "must not contain a NUL character",
    _LINE: "must be one line, without blanks at its ends and without control characters",
    _IMAGE: "must be a Docker image reference, such as registry.example/team/ide:1.2",
    _USERNAME: "must be 1 to 63 of a-z, 0-9, '.', '_' and '-', and begin with a letter or digit",
    _KEY: "must be visible ASCII characters without blanks",
}


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


class PageQuery(BaseModel):
    model_config = ConfigDict(extra="forbid")

    limit: int = Field(50, ge=1, le=200)
    offset: int = Field(0, ge=0, le=1_000_000_000)
