"""The OpenAPI document, made true: no answer is declared that is never given, and none is given that is not."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from starter.api.errors import MEANINGS, ErrorBody

_UNSAFE = ("post", "put", "patch", "delete")
# By the middleware (see body_limit.py), whether the route wants a body or not.
_OF_ANY_BODY = (408, 413, 415)
_FRAMEWORKS_OWN = ("HTTPValidationError", "ValidationError")


def use_true_openapi(app: FastAPI) -> None:
    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _true(
                get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            )
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def _true(document: dict[str, Any]) -> dict[str, Any]:
    """The framework adds its own 422 wherever there is a parameter; an id that is none is our 404."""
    for method, operation in (one for item in document["paths"].values() for one in item.items()):
        invalid = operation["responses"].get("422", {})
        if _FRAMEWORKS_OWN[0] in str(invalid):
            del operation["responses"]["422"]
        if method in _UNSAFE:
            operation["responses"] |= {str(status): _answer(status) for status in _OF_ANY_BODY}
    for name in _FRAMEWORKS_OWN:
        document["components"]["schemas"].pop(name, None)
    return document


def _answer(status: int) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{ErrorBody.__name__}"}
    return {"description": MEANINGS[status], "content": {"application/json": {"schema": schema}}}
