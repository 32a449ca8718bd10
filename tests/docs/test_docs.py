"""Docs are true: tables come from the code, links lead somewhere, and what they tell people to type exists."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from domain.model import ErrorReason
from settings import WITHOUT_MEANING, Settings
from starter.cli import app
from tests.docs import api_document, metrics_table, settings_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = [path for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")] if path.name != "CHANGELOG.md"]
IDS = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS]

# Variables of others, named in our docs as such.
FOREIGN = re.compile(
    r"OTEL_|DOCKER_CONFIG|DOCKER_TLS_VERIFY|DOCKER_CERT_PATH|DOCKER_GID|POSTGRES_PASSWORD|REDIS_PASSWORD|SSL_CERT_FILE"
)
SETTING = re.compile(
    r"\b(?:CODEHUB|DATABASE|REDIS|S3|TEMPORAL|DOCKER|WORKSPACE|COORDINATOR|RECONCILER|ARCHIVE|TTL|ACTIVITY|GC|LIMITS"
    r"|SESSION|AUDIT|WORKER|METRICS|LOG|NODE|OTEL|TRUSTED|STOP)_[A-Z][A-Z0-9_]+(?![a-z*]|_\*)\b"
)
# Words of the product that look like settings; all but two are the command line's own.
NOT_SETTINGS = {"CODEHUB_CONFIG", "CODEHUB_REPORT", "CODEHUB_TOKEN", "CODEHUB_USERNAME", "DOCKER_VOLUMES"}


def test_the_settings_table_is_that_of_the_code() -> None:
    text = settings_table.DOCUMENT.read_text()
    assert settings_table.with_table(text) == text, "run: python -m tests.docs.settings_table"


def test_the_metrics_table_is_that_of_the_code() -> None:
    text = metrics_table.DOCUMENT.read_text()
    assert metrics_table.with_table(text) == text, "run: python -m tests.docs.metrics_table"


def test_the_api_document_is_that_of_the_code() -> None:
    assert api_document.DOCUMENT.read_text() == api_document.text(), "run: python -m tests.docs.api_document"


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_links_lead_somewhere(document: Path) -> None:
    """Files, and the headings in them."""
    for target in re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", document.read_text()):
        name, _, anchor = target.partition("#")
        found = (document.parent / name).resolve() if name else document
        assert found.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in _anchors(found), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_settings_exist(document: Path) -> None:
    known = {name.upper() for name in Settings.model_fields} | set(WITHOUT_MEANING) | NOT_SETTINGS
    named = {name for name in SETTING.findall(document.read_text()) if not FOREIGN.match(name)}
    assert named - known == set()


def test_what_the_command_line_goes_by_is_told() -> None:
    """Variables that are no settings, and so stand in no table."""
    told = (ROOT / "docs" / "production.md").read_text().partition("## The command line")[2].partition("\n## ")[0]
    names = {name for name in NOT_SETTINGS if name.startswith("CODEHUB_")} - {"CODEHUB_REPORT"}
    assert names <= set(SETTING.findall(told))


@pytest.mark.parametrize("document", DOCUMENTS, ids=IDS)
def test_commands_exist(document: Path) -> None:
    """`codehub …` with its options, and `make …`."""
    text = document.read_text()
    assert _wrong_commands(text) == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert (
        set(re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", text, re.MULTILINE))
        - {pair for target in targets for pair in ((target, ""), ("", target))}
        == set()
    )


def test_the_check_of_commands_has_teeth() -> None:
    assert _wrong_commands("Run `codehub explode NAME`.") == ["explode NAME"]
    assert _wrong_commands("```\ncodehub create demo --wat\n```\n") == ["create demo --wat"]
    assert _wrong_commands("codehub makes reality follow, `codehub create demo --wait`, `codehub node ls`") == []


def test_every_error_reason_has_its_section() -> None:
    anchors = _anchors(ROOT / "docs" / "runbook.md")
    assert {reason.lower() for reason in ErrorReason} <= anchors


def test_modules_that_are_to_be_run_exist() -> None:
    for document in DOCUMENTS:
        for module in re.findall(r"python -m ([a-z_.]+)", document.read_text()):
            path = ROOT / module.rstrip(".").replace(".", "/")
            assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{document.name}: {module}"


@cache
def _anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def documented_commands(text: str) -> list[str]:
    """What follows `codehub` where it is to be typed."""
    # As the value of somebody else's option (`psql -U codehub`) it is no command.
    found = re.findall(r"(?<![\w./-])(?<!-\w )codehub ((?:[a-z-]+|--?[a-z-]+)(?: [^\s`|#).,:;]+)*)", text)
    return [words for words in found if _is_typed(words, text)]


def _wrong_commands(text: str) -> list[str]:
    return [words for words in documented_commands(text) if problem_of(words.split())]


def _is_typed(words: str, text: str) -> bool:
    """In code, not in a sentence about codehub."""
    command = f"codehub {words}"
    spans = re.findall(r"`([^`\n]+)`", text) + re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return any(command in span for span in spans)


def problem_of(words: list[str]) -> str | None:
    command: Any = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        name, *words = words
        if name.startswith("-"):
            return None if name in {"--help", "-h", "--install-completion"} else f"no option {name}"
        if name not in command.commands:
            return f"no command {name}"
        command = command.commands[name]
    options = {option for parameter in command.params for option in getattr(parameter, "opts", [])} | {"--help", "-h"}
    unknown = [word for word in words if word.startswith("-") and word.partition("=")[0] not in options]
    return f"no option {unknown[0]}" if unknown else None
