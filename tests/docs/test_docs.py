"""Docs are true: tables come from the code, links lead somewhere."""

import re
from pathlib import Path

import pytest

from tests.docs.settings_table import DOCUMENT, with_table

ROOT = Path(__file__).parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_the_settings_table_is_that_of_the_code() -> None:
    text = DOCUMENT.read_text()
    assert with_table(text) == text, "run: python -m tests.docs.settings_table"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
        assert (document.parent / target).exists(), f"{document.name} links to {target}"
