"""PROMISE 31: generated API calls give no 5xx and no answer that the OpenAPI document doesn't declare."""

import asyncio
import itertools
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import ignored_auth

from tests.api.world import Api, Person

KEYS = itertools.count()
SECONDS = 120
"""For an answer: the server shares this process, and a busy machine stops it now and then."""


async def _calls(api: Api, admin: Person, count: int) -> int:
    """At least `count` of them, over every operation, right and wrong ones, on objects that are there or not."""
    document = (await api("GET", "/api/openapi.json")).json
    token = (await admin("POST", "/api/v1/tokens", {"name": "fuzz"})).json["token"]
    user = await api.person("target")
    schema = schemathesis.openapi.from_dict(document)
    # Who may do what is for test_ownership; here everything is allowed.
    schema.config.generation.update(with_security_parameters=False)
    found: Any = schema.get_all_operations()
    # A stream of events has no end to wait for.
    operations = [one for one in (result.ok() for result in found) if one.path != "/api/v1/events"]
    made = 0
    for turn in itertools.count():
        for operation in operations:
            headers = {"Authorization": f"Bearer {token}"}
            if (operation.method, operation.path) == ("post", "/api/v1/tokens"):
                headers = {"Cookie": f"session={admin.secret}"}
            ids = {"workspace_id": await admin.workspace(f"{turn} {operation.label}"), "user_id": user.id}
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
                made += await asyncio.to_thread(
                    _fuzz, turn, operation, mode, api.url, headers, ids, max(1, count // len(operations) // 2)
                )
        if made >= count:
            return made
    raise AssertionError


def _fuzz(
    turn: int,
    operation: Any,
    mode: GenerationMode,
    url: str,
    headers: dict[str, str],
    ids: dict[str, str],
    examples: int,
) -> int:
    made = 0

    @seed(turn)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), real=st.booleans())
    def call(case: Any, real: bool) -> None:
        nonlocal made
        if real and mode is GenerationMode.POSITIVE:
            for name in ids.keys() & set(case.path_parameters or {}):
                case.path_parameters[name] = ids[name]
        if mode is GenerationMode.POSITIVE and "Idempotency-Key" in (case.headers or {}):
            # The same one for another body is refused, rightly.
            case.headers["Idempotency-Key"] = f"key-{next(KEYS)}"
        case.call_and_validate(base_url=url, headers=headers, excluded_checks=[ignored_auth], timeout=SECONDS)
        made += 1

    try:
        call()
    except Exception as error:  # some operations can't be called wrongly
        if type(error).__name__ not in {"Unsatisfiable", "SkipTest"}:
            raise
    return made


@pytest.mark.timeout(900)
async def test_generated_calls(api: Api, admin: Person) -> None:
    """A short count of PROMISE 31."""
    assert await _calls(api, admin, 400) >= 400


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_twenty_thousand_generated_calls(api: Api, admin: Person) -> None:
    """PROMISE 31 at full count."""
    assert await _calls(api, admin, 20_000) >= 20_000
