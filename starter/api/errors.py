"""Every error is `{"error": {"code", "message"}}`: the code for programs, the message for people."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from adapters.postgres.accounts import LastAdmin, UsernameTaken, UserNotFound
from adapters.postgres.catalog import NameTaken
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.desired_state import Refusal, Refused
from adapters.postgres.idempotency import IdempotencyMismatch
from adapters.postgres.lockout import TooManyAttempts
from starter.api.fields import PATTERNS_IN_WORDS
from starter.api.logins import BadCredentials
from starter.api.passwords import PasswordsBusy
from starter.web import nothing_here

_LIMIT_RETRY_AFTER = 30
_MOST_PROBLEMS = 5
_LONGEST_FIELD = 100


class ErrorDetail(BaseModel):
    code: str
    message: str


class ErrorBody(BaseModel):
    error: ErrorDetail


class ApiError(Exception):
    def __init__(self, status: int, code: str, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = {"Retry-After": str(retry_after)} if retry_after is not None else {}
        if status == 401:
            self.headers["WWW-Authenticate"] = 'Bearer realm="codehub"'

    def response(self) -> JSONResponse:
        # What a client sent may be quoted, and JSON allows what UTF-8 can't hold.
        message = self.message.encode(errors="replace").decode()
        return JSONResponse(
            {"error": {"code": self.code, "message": message}}, status_code=self.status, headers=self.headers
        )


def not_found() -> ApiError:
    return ApiError(404, "not_found", "There is nothing here, or it is not yours.")


def unavailable() -> ApiError:
    return ApiError(503, "database_unavailable", "The database does not answer; try again in a moment.", retry_after=2)


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route: the errors it gives besides those that every route can give."""
    return {status: {"model": ErrorBody, "description": MEANINGS[status]} for status in sorted({*statuses, 503})}


def add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(ApiError, _respond)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    for kind in _TRANSLATIONS:
        app.add_exception_handler(kind, _translated)


MEANINGS = {
    400: "The body is not JSON",
    401: "Not logged in, or the login is not valid any more",
    403: "Not allowed: another site's request, or not this user's business",
    404: "There is no such thing, or it is another user's",
    408: "The body did not arrive in time",
    409: "Not in its present state; the code says why",
    413: "The body is larger than 1 MiB",
    415: "The body is not application/json",
    422: "A field is unknown or its value is wrong; the message names it",
    429: "Too many, for now; Retry-After says when to try again",
    503: "Something that this needs does not answer; Retry-After says when to try again",
}


def _refused(error: Refused) -> ApiError:
    match error.refusal:
        case Refusal.NOT_FOUND:
            return not_found()
        case Refusal.OPERATION_RUNNING:
            return ApiError(409, error.refusal, "An operation is running; try again when it has ended.")
        case Refusal.IN_ERROR:
            return ApiError(409, error.refusal, "The workspace is in ERROR: recover it first.")
        case Refusal.NOT_IN_ERROR:
            return ApiError(409, error.refusal, "The workspace is not in ERROR: there is nothing to recover from.")
        case Refusal.DELETING:
            return ApiError(409, "deleting", "The workspace is being deleted; this can't be taken back.")
        case Refusal.USER_LIMIT:
            message = f"At most {error.limit} workspaces of a user can be RUNNING at once: put one to STANDBY first."
            return ApiError(429, error.refusal, message, retry_after=_LIMIT_RETRY_AFTER)
        case Refusal.GLOBAL_LIMIT:
            message = f"At most {error.limit} workspaces can be RUNNING at once; try again later."
            return ApiError(429, error.refusal, message, retry_after=_LIMIT_RETRY_AFTER)


def _too_many_attempts(error: TooManyAttempts) -> ApiError:
    message = f"Too many failed logins. Try again in {error.retry_after} seconds."
    return ApiError(429, "too_many_attempts", message, retry_after=error.retry_after)


_TRANSLATIONS: dict[type[Exception], Any] = {
    Refused: _refused,
    TooManyAttempts: _too_many_attempts,
    BadCredentials: lambda _: ApiError(401, "bad_credentials", "Wrong username or password."),
    PasswordsBusy: lambda _: ApiError(503, "busy", "Too many logins at once; try again in a moment.", retry_after=2),
    DatabaseUnavailable: lambda _: unavailable(),
    UserNotFound: lambda _: not_found(),
    NameTaken: lambda _: ApiError(409, "name_taken", "You have another workspace of this name."),
    UsernameTaken: lambda _: ApiError(409, "username_taken", "There is another user of this name."),
    LastAdmin: lambda _: ApiError(409, "last_admin", "This is the last admin: make another user admin first."),
    IdempotencyMismatch: lambda _: ApiError(
        422, "idempotency_mismatch", "This Idempotency-Key was used for another request: take a new one."
    ),
}


async def _respond(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, ApiError):
        raise error
    return error.response()


async def _translated(_: Request, error: Exception) -> JSONResponse:
    found: ApiError = _TRANSLATIONS[type(error)](error)
    return found.response()


async def _http_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    match error.status_code:
        case 404:
            return nothing_here(request) or ApiError(404, "not_found", "There is no such path.").response()
        case 405:
            allowed = _allowed(request)
            failure = ApiError(405, "method_not_allowed", f"This path takes {', '.join(allowed)}.")
            failure.headers["Allow"] = ", ".join(allowed)
            return failure.response()
        case 400:
            return ApiError(400, "malformed_json", "The body is not JSON that can be read.").response()
    return ApiError(error.status_code, "http_error", str(error.detail)).response()


def _allowed(request: Request) -> list[str]:
    """Of every route with this path: the framework names those of the first one only."""
    found = [route for route in iter_route_contexts(request.app.routes) if route.path_regex.match(request.url.path)]
    return sorted({method for route in found for method in route.methods or ()})


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, RequestValidationError):
        raise error
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return ApiError(400, "malformed_json", "The body is not JSON that can be read.").response()
    if any(problem["loc"][0] == "path" for problem in problems):
        # An id that can't be one names nothing.
        return not_found().response()
    listed = "; ".join(_problem(problem) for problem in problems[:_MOST_PROBLEMS])
    return ApiError(422, "invalid", listed).response()


def _problem(problem: dict[str, Any]) -> str:
    where = ".".join(str(part)[:_LONGEST_FIELD] for part in problem["loc"][1:]) or str(problem["loc"][0])
    match problem["type"]:
        case "extra_forbidden":
            return f"{where}: unknown field"
        case "missing":
            return f"{where}: missing"
        case "string_pattern_mismatch":
            return f"{where}: {PATTERNS_IN_WORDS.get(problem['ctx']['pattern'], problem['msg'])}"
        case "string_too_long":
            return f"{where}: at most {problem['ctx']['max_length']} characters"
        case "string_too_short":
            least = problem["ctx"]["min_length"]
            return f"{where}: {f'at least {least} characters' if least > 1 else 'must not be empty'}"
    return f"{where}: {problem['msg'].removeprefix('Value error, ').replace('Input should be', 'must be')}"
