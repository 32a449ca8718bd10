"""`GET /metrics` at the API's own address: for whoever has METRICS_TOKEN, and for admins. Never for everybody."""

from fastapi import APIRouter, Request, Response

from starter.api.authentication import Authenticator
from starter.api.dependencies import Deps
from starter.api.errors import ApiError
from starter.metrics import CONTENT_TYPE, Exposition


def metrics_router(exposition: Exposition) -> APIRouter:
    router = APIRouter()

    # Not in the OpenAPI document: its language is Prometheus', not ours.
    @router.get("/metrics", include_in_schema=False)
    async def metrics(request: Request, deps: Deps) -> Response:
        if not exposition.is_shown_to(request.headers.get("authorization", "")):
            identity = await Authenticator(deps.sessions, deps.tokens).identify(request)
            if identity is None:
                raise ApiError(401, "unauthenticated", "Show METRICS_TOKEN, or the session or token of an admin.")
            if not identity.user.is_admin:
                raise ApiError(403, "admin_only", "Only an admin can do this.")
        return Response(await exposition.render(), media_type=CONTENT_TYPE)

    return router
