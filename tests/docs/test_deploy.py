"""What is deployed with codehub is valid, and speaks of what codehub has."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.docs import metrics_table

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.temporal.yml"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
BOARD = ROOT / "deploy" / "grafana" / "codehub.json"
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(BOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [
        target["expr"] for panel in panels() for target in panel.get("targets", [])
    ]


def metrics_in(expression: str) -> set[str]:
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", expression)
    return set(re.findall(r"\b(?:codehub|temporal|process)_[a-z_0-9]+", bare))


def test_only_metrics_that_exist_are_asked_for() -> None:
    """Those of Temporal's SDK are checked against a real worker's page: see tests/telemetry."""
    asked = set().union(*(metrics_in(expression) for expression in expressions()))
    ours = {name for name in asked if not name.startswith("temporal_")}
    assert ours - metrics_table.names() - PROCESS == set()
    assert len(asked) > 25


def jobs() -> set[str]:
    """What the alerts call them."""
    return set().union(*(re.findall(r'job="([\w-]+)"', rule["expr"]) for rule in rules()))


def test_jobs_are_called_as_the_alerts_call_them() -> None:
    scraped = yaml.safe_load((ALERTS.parent / "prometheus.yml").read_text())["scrape_configs"]
    assert {job["job_name"] for job in scraped} == jobs()


def test_only_labels_that_exist_are_asked_for() -> None:
    labels = {name: set(found) for name, (_, found) in metrics_table.families().items()}
    for expression in expressions():
        for name, inside in re.findall(r"(codehub_[a-z_]+)\{([^}]*)\}", expression):
            family = re.sub(r"_(total|bucket|sum|count|info)$", "", name)
            named = set(re.findall(r"([a-z_]+)\s*(?:=|!)", inside))
            assert named <= labels.get(family, labels.get(name, set())), expression


def test_every_alert_says_what_to_do_and_has_its_page() -> None:
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "runbook.md").read_text(), re.MULTILINE)
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert len(rule["annotations"]["action"]) > 40, rule["alert"]
        assert rule["annotations"]["summary"]
        assert rule["alert"] in headings, f"docs/runbook.md says nothing about {rule['alert']}"
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"


def test_the_board_can_be_imported() -> None:
    """Ids are unique, panels lie beside each other, and every panel asks its data source."""
    board = json.loads(BOARD.read_text())
    assert board["title"] == "codehub"
    assert board["uid"]
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        for target in panel.get("targets", []):
            assert target["datasource"]["uid"] == "${datasource}"
