"""The proxy's pages look as the dashboard does, and say no more than is known."""

import re
from pathlib import Path

import pytest

import starter.proxy.pages
import starter.web
from domain.model import DesiredState, Operation, Phase, UserId, WorkspaceId
from starter.proxy import pages
from starter.proxy.decide import PageKind, View

_STYLE = (Path(starter.proxy.pages.__file__).parent / "page.css").read_text()
_ASSETS = Path(starter.web.__file__).parent / "assets"


def test_the_colours_are_the_dashboards() -> None:
    """By name, in light and in dark: nobody has to learn them twice."""
    found = re.findall(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", (_ASSETS / "tokens.css").read_text())
    theirs = {name: (light, dark) for name, light, dark in found}
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+);", part)) for part in _STYLE.split("@media", 2)[:2])
    assert {name: (value, dark[name]) for name, value in light.items()} == {name: theirs[name] for name in light}


@pytest.mark.parametrize(
    ("kind", "phase"), [(PageKind.RESTORE_NEEDED, Phase.ARCHIVED), (PageKind.START_NEEDED, Phase.PENDING)]
)
def test_one_phase_has_one_colour(kind: PageKind, phase: Phase) -> None:
    found = re.search(rf"{phase}: {{ label: '\w+', tone: '(\w+)' }}", (_ASSETS / "words.js").read_text())
    assert found
    assert f'<main class="{found[1]}"' in _page(kind, phase)
    assert f".{found[1]} .badge" in _STYLE


def test_an_archive_has_no_reason_that_nobody_knows() -> None:
    """Its owner may have archived it a moment ago."""
    assert "not used" not in _page(PageKind.RESTORE_NEEDED, Phase.ARCHIVED)


def _page(kind: PageKind, phase: Phase) -> str:
    desired = DesiredState.ARCHIVED if phase is Phase.ARCHIVED else DesiredState.STANDBY
    view = View(WorkspaceId("id"), UserId("me"), "name", phase, Operation.NONE, desired, None, None)
    return pages.state(kind, view).body.decode()
