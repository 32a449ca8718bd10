"""The API of a codehub server, over the standard library's HTTP: nothing heavy is imported for it."""

import http.client
import json
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from starter.commands.failure import CommandFailed, Exit

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
TRIES = 3
_PAUSE_SECONDS = 0.3
# A server lets an idle connection go after a while: one that was idle this long is not used again.
_FRESH_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


class Server:
    """One server and who calls it. Not for several threads."""

    def __init__(self, url: str, token: str | None = None, *, patience: float = ANSWER_SECONDS) -> None:
        self.url = url
        self.token = token
        self.now = datetime.now(UTC)
        """The server's clock, as of its last answer: what its times are to be compared with."""
        self._patience = patience
        self._parts = urlsplit(url)
        self._connection: http.client.HTTPConnection | None = None
        self._used_at = 0.0

    def get(self, path: str, **query: object) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        return self.ask("GET", f"{path}?{urlencode(given)}" if given else path, again=True).json

    def post(self, path: str, body: Any = None, *, key: str | None = None) -> Any:
        """With an idempotency key it is asked again when the answer gets lost."""
        headers = {"Idempotency-Key": key} if key else {}
        return self.ask("POST", path, body, headers, again=key is not None).json

    def patch(self, path: str, body: Any) -> Any:
        return self.ask("PATCH", path, body, again=True).json

    def delete(self, path: str) -> None:
        self.ask("DELETE", path)

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, *, again: bool = False
    ) -> Answer:
        """The answer to a request that the server granted. `again`: doing it twice is the same as doing it once."""
        tries = TRIES if again else 1
        while True:
            try:
                return self._granted(self._exchange(method, path, body, headers or {}))
            except (OSError, http.client.HTTPException) as error:
                self.close()
                tries -= 1
                if not tries:
                    raise CommandFailed(
                        f"The connection to {self.url} broke before the answer came ({_reason(error)}): "
                        "what was asked for may have been done.",
                        Exit.UNREACHABLE,
                    ) from error
                time.sleep(_PAUSE_SECONDS)

    def stream(self, path: str, headers: Mapping[str, str], patience: float) -> http.client.HTTPResponse:
        """An answer without an end, on a connection of its own. It closes that connection when it is closed."""
        connection = self._connect(patience)
        connection.request("GET", self._parts.path + path, headers=self._headers({**headers, "Connection": "close"}))
        response = connection.getresponse()
        if response.status != 200:
            with response:
                self._granted(Answer(response.status, response.headers, response.read()))
            raise _not_codehub(self.url)
        return response

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Answer:
        if time.monotonic() - self._used_at > _FRESH_SECONDS:
            self.close()
        if self._connection is None:
            self._connection = self._connect(self._patience)
        content = None if body is None else json.dumps(body).encode()
        # The server takes a POST of a program by this header, also one without a body.
        typed = {} if method in {"GET", "DELETE"} else {"Content-Type": "application/json"}
        self._connection.request(method, self._parts.path + path, content, self._headers({**typed, **headers}))
        response = self._connection.getresponse()
        answer = Answer(response.status, response.headers, response.read())
        self._used_at = time.monotonic()
        with suppress(ValueError, TypeError):
            self.now = parsedate_to_datetime(answer.headers["Date"]).astimezone(UTC)
        return answer

    def _connect(self, patience: float) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=min(CONNECT_SECONDS, patience))
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            raise CommandFailed(
                f"{self.url} has a certificate that is not trusted here ({error.verify_message}): "
                "name the file of its CA in SSL_CERT_FILE.",
                Exit.UNREACHABLE,
            ) from error
        except (OSError, UnicodeError) as error:
            raise CommandFailed(
                f"Nobody answers at {self.url} ({_reason(error)}). Is codehub running there? "
                "Start it (codehub up), or name another server with --url.",
                Exit.UNREACHABLE,
            ) from error
        connection.sock.settimeout(patience)
        return connection

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        return {"Accept": "application/json", "User-Agent": "codehub-cli", **bearer, **headers}

    def _granted(self, answer: Answer) -> Answer:
        if 300 <= answer.status < 400:
            # Not followed: it would carry the token to wherever it leads.
            raise CommandFailed(f"{self.url} sends on to {answer.headers['Location']}: use that as --url.")
        if not 200 <= answer.status < 300:
            raise self._refused(answer)
        if answer.body and not _is_json(answer):
            raise _not_codehub(self.url)
        return answer

    def _refused(self, answer: Answer) -> CommandFailed:
        try:
            code, message = answer.json["error"]["code"], answer.json["error"]["message"]
        except (ValueError, KeyError, TypeError):
            phrase = http.client.responses.get(answer.status, "")
            code, message = "http_error", f"{self.url} answered {answer.status} {phrase}."
        if answer.status == 401 and code == "unauthenticated":
            message = f"The login at {self.url} is not valid any more: codehub login --url {self.url}"
        return CommandFailed(str(message), _EXITS.get(answer.status, Exit.FAILED), code=str(code))


_EXITS = {
    400: Exit.USAGE,
    401: Exit.NOT_LOGGED_IN,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    422: Exit.USAGE,
    429: Exit.LIMIT,
    502: Exit.UNREACHABLE,
    503: Exit.UNREACHABLE,
    504: Exit.UNREACHABLE,
}


def _not_codehub(url: str) -> CommandFailed:
    return CommandFailed(f"What answers at {url} is not codehub: check the address.", Exit.UNREACHABLE)


def _is_json(answer: Answer) -> bool:
    return answer.headers.get_content_type() == "application/json"


def _reason(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text)
