"""The OpenAPI document, made true: no answer is declared that is never given."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

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
    for operation in (one for item in document["paths"].values() for one in item.values()):
        invalid = operation["responses"].get("422", {})
        if _FRAMEWORKS_OWN[0] in str(invalid):
            del operation["responses"]["422"]
    for name in _FRAMEWORKS_OWN:
        document["components"]["schemas"].pop(name, None)
    return document
