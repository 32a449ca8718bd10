"""Every alert fires when what it is about happens, and not while all is well: told by Prometheus' own rule tester."""

import json
import re
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.debian import unpacked
from tests.docs.test_deploy import ALERTS, ROOT, panels, rules

METRICS = ROOT / "docs" / "metrics.md"
Series = dict[str, str]


@dataclass(frozen=True)
class Case:
    at: str
    bad: Series
    well: Series
    """Values per minute, as promtool writes them: `0+5x40` is 0, 5, 10 … for 40 minutes."""


def slow(name: str, limit: str, labels: str = "") -> Case:
    """A histogram whose observations are all above the limit, or all below."""
    above = f'{name}_bucket{{le="{limit}"{labels}}}'
    rest = {f'{name}_bucket{{le="{le}"{labels}}}': "0+60x40" for le in ("60", "+Inf")}
    return Case("25m", {above: "0x40", **rest}, {above: "0+60x40", **rest})


def gauge(name: str, bad: str, well: str, at: str) -> Case:
    return Case(at, {name: f"{bad}x120"}, {name: f"{well}x120"})


def counter(name: str, per_minute: int, at: str = "25m") -> Case:
    return Case(at, {name: f"0+{per_minute}x40"}, {name: "0x40"})


API, WORKER = 'up{job="codehub-api",instance="a"}', 'up{job="codehub-worker",instance="b"}'
FAILED = 'codehub_operation_seconds_count{operation="STARTING",outcome="failed"}'
DONE = 'codehub_operation_seconds_count{operation="STARTING",outcome="succeeded"}'
SERVED = 'codehub_http_request_seconds_count{status="2xx"}'
REFUSED = "codehub_gc_refused_total"
BROKEN = 'codehub_http_request_seconds_count{status="5xx"}'
PRUNED = 'codehub_skipped_total{loop="prune"}'
RECOUNTED = 'codehub_skipped_total{loop="bookkeeper"}'
ERRORS = 'codehub_workspaces_in_error{{reason="{}"}}'
CASES = {
    "CodehubDown": Case("5m", {API: "0x20", WORKER: "1x20"}, {API: "1x20", WORKER: "1x20"}),
    "CodehubNoLeader": gauge('codehub_leader{lock="coordinator"}', "0", "1", "5m"),
    "CodehubDataAtRisk": gauge('codehub_workspaces_in_error{reason="DataLost"}', "1", "0", "1m"),
    "CodehubWorkspacesInError": gauge('codehub_workspaces_in_error{reason="Timeout"}', "1", "0", "12m"),
    "CodehubOperationsFail": Case("30m", {FAILED: "0+1x40", DONE: "0+1x40"}, {FAILED: "0x40", DONE: "0+1x40"}),
    "CodehubOperationStuck": gauge('codehub_oldest_operation_seconds{operation="ARCHIVING"}', "3000", "100", "8m"),
    "CodehubNobodyComes": gauge("codehub_longest_wait_seconds", "120", "5", "5m"),
    "CodehubNodeLost": gauge("codehub_longest_silence_seconds", "100", "5", "3m"),
    "CodehubQueueLag": slow("temporal_activity_schedule_to_start_latency_seconds", "10", ',task_queue="codehub"'),
    "CodehubReconcileSlow": slow("codehub_reconcile_seconds", "5"),
    "CodehubWakeSlow": slow("codehub_wake_seconds", "5"),
    "CodehubSweepsSkipped": counter('codehub_skipped_total{loop="sweep"}', 5),
    "CodehubWakesLost": counter("codehub_wakes_rescued_total", 5),
    "CodehubWorkflowsMissing": counter("codehub_workflows_missing_total", 1),
    "CodehubTtlStands": Case(
        "25m", {"codehub_ttl_tick_timestamp_seconds": "0x40"}, {"codehub_ttl_tick_timestamp_seconds": "0+60x40"}
    ),
    "CodehubTtlBlind": counter("codehub_ttl_standby_skipped_total", 1),
    # Never finished: what is shown is when the database was set up, here at the beginning of all time.
    "CodehubGcStands": Case(
        "12h30m",
        {"codehub_gc_finished_timestamp_seconds": "0x760"},
        {"codehub_gc_finished_timestamp_seconds": "0+60x760"},
    ),
    "CodehubGcRefused": Case("10h", {REFUSED: "0x240 2x480"}, {REFUSED: "0x720"}),
    "CodehubGcHeld": gauge("codehub_gc_held", "1", "0", "70m"),
    "CodehubApiErrors": Case("25m", {BROKEN: "0+9x40", SERVED: "0+60x40"}, {BROKEN: "0x40", SERVED: "0+60x40"}),
    "CodehubWorkspacesUnreachable": counter('codehub_proxy_requests_total{result="unreachable"}', 60),
    "CodehubLoginsFail": counter("codehub_login_failures_total", 120),
}


# Beyond one of each: what an alert must not leave out, and what must not raise it.
FURTHER = [
    # Whether its target does not answer, or there is none any more: nobody has to look at what is not there.
    ("CodehubDown", Case("5m", {API: "1x20", WORKER: "0x20"}, {API: "1x20", WORKER: "1x20"})),
    ("CodehubDown", Case("15m", {API: "1x20", WORKER: "1x5 stale"}, {API: "1x20", WORKER: "1x20"})),
    ("CodehubDown", Case("15m", {API: "1x5 stale", WORKER: "1x20"}, {API: "1x20", WORKER: "1x20"})),
    # Every round of these is skipped: they are so rare that there are few.
    ("CodehubSweepsSkipped", counter('codehub_skipped_total{loop="census"}', 1)),
    ("CodehubSweepsSkipped", Case("61m", {PRUNED: "0x9 1x9 2x9 3x9 4x9 5x9 6x9"}, {PRUNED: "0x70"})),
    ("CodehubSweepsSkipped", Case("4h", {RECOUNTED: "0x59 1x59 2x59 3x59"}, {RECOUNTED: "1x240"})),
    # Whoever is told not to recover is not told to recover ten minutes later.
    *(
        ("CodehubWorkspacesInError", Case("12m", {ERRORS.format("Timeout"): "1x30"}, {ERRORS.format(lost): "1x30"}))
        for lost in ("DataLost", "ArchiveCorrupted", "ContainerWithoutVolume")
    ),
]


def test_every_alert_is_tried() -> None:
    assert {rule["alert"] for rule in rules()} == set(CASES)


def test_loops_are_those_of_the_code() -> None:
    """In the rules, in what they are tried with, and in the runbook, which says whose each is."""
    known = loops()
    assert {"sweep", "census", "prune", "listener", "invalidation", "metrics_fleet", "heart"} <= known
    tried = [one for _, case in (*CASES.items(), *FURTHER) for one in (*case.bad, *case.well)]
    named = re.findall(r'loop="(\w+)"', " ".join([*tried, *(rule["expr"] for rule in rules())]))
    assert set(named) <= known
    _, _, section = (ROOT / "docs" / "runbook.md").read_text().partition("### CodehubSweepsSkipped")
    told = set(re.findall(r"`(\w+)`", section.partition("###")[0]))
    assert told - {"codehub_skipped_total"} == known


def loops() -> set[str]:
    """What codehub_skipped_total counts by: as it is said where it is counted, or as a supervised task is called."""
    found = {f"metrics_{name}" for name in re.findall(r'sources\["(\w+)"\]', (ROOT / "worker.py").read_text())}
    for package in ("adapters", "coordinator", "starter", "activities"):
        for path in (ROOT / package).rglob("*.py"):
            found |= set(re.findall(r'SKIPPED\.labels\("(\w+)"\)', path.read_text()))
    for name in ("starter/electing.py", "starter/proxy/proxy.py"):
        supervised = r'"(\w+)"\]?(?::| =) .*?(?:\.run|_forever|\.follow_events)\b'
        found |= set(re.findall(supervised, (ROOT / name).read_text()))
    return found


@pytest.fixture(scope="module")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = unpacked("prometheus", "promtool", tmp_path_factory.mktemp("prometheus"))
    if found is None:
        pytest.skip("no promtool, and Debian's package prometheus can't be downloaded")
    return found


def test_prometheus_takes_the_rules(promtool: str, tmp_path: Path) -> None:
    for path in ALERTS.parent.glob("*.yml"):
        (tmp_path / path.name).write_text(path.read_text())
    (tmp_path / "metrics-token").write_text("token")
    for what, name in (("rules", "alerts.yml"), ("config", "prometheus.yml")):
        _run([promtool, "check", what, name], tmp_path)


def test_prometheus_takes_what_the_board_asks(promtool: str, tmp_path: Path) -> None:
    """Each panel's expressions, as rules of a file that is good for nothing else: only Prometheus parses PromQL."""
    asked = [target["expr"] for panel in panels() for target in panel.get("targets", [])]
    assert asked
    _run([promtool, "check", "rules", _recording(tmp_path, asked)], tmp_path)
    # Else what Prometheus refuses would pass here, too.
    with pytest.raises(AssertionError, match="parse error"):
        _run([promtool, "check", "rules", _recording(tmp_path, [*asked, f"sum({asked[0]}"])], tmp_path)


def _recording(folder: Path, expressions: list[str]) -> str:
    """Grafana's own variables, such as $__rate_interval, all stand for a time."""
    named = [
        {"record": f"board:{number}", "expr": re.sub(r"\$__\w+", "5m", expression)}
        for number, expression in enumerate(expressions)
    ]
    # JSON is YAML.
    (folder / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": named}]}))
    return "board.yml"


def test_alerts_fire_when_they_should_and_only_then(promtool: str, tmp_path: Path) -> None:
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text())
    tests = [_test(name, case, fires=fires) for name, case in (*CASES.items(), *FURTHER) for fires in (True, False)]
    suite = {"rule_files": [ALERTS.name], "evaluation_interval": "1m", "tests": tests}
    # JSON is YAML.
    (tmp_path / "tests.yml").write_text(json.dumps(suite))
    _run([promtool, "test", "rules", "tests.yml"], tmp_path)


def test_what_is_down_is_said(promtool: str, tmp_path: Path) -> None:
    """Of each process what that means, with its address where there is one."""
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text())
    told = {"api": ("reaches an IDE", "no API process at all"), "worker": ("no start, stop", "no worker at all")}
    tests = []
    for process, (meaning, none) in told.items():
        job, other = f"codehub-{process}", {"api": WORKER, "worker": API}[process]
        (rule,) = (one for one in rules() if one["labels"].get("process") == process)
        for series, instance in ((f'up{{job="{job}",instance="a:1"}}', {"instance": "a:1"}), ('gone{job="x"}', {})):
            described = _expanded(rule["annotations"]["description"], instance.get("instance", ""))
            assert meaning in described
            assert (none in described) != bool(instance)
            fires = {
                "exp_labels": {**rule["labels"], "job": job, **instance},
                "exp_annotations": {**rule["annotations"], "description": described},
            }
            asked = {"eval_time": "5m", "alertname": "CodehubDown", "exp_alerts": [fires]}
            values = [{"series": series, "values": "0x20"}, {"series": other, "values": "1x20"}]
            tests.append({"interval": "1m", "input_series": values, "alert_rule_test": [asked]})
    suite = {"rule_files": [ALERTS.name], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(suite))
    _run([promtool, "test", "rules", "tests.yml"], tmp_path)


def _expanded(description: str, instance: str) -> str:
    """`with`, `else` and `end`, as Prometheus reads them."""
    ((there, gone),) = re.findall(r"\{\{ with \$labels.instance \}\}(.*)\{\{ else \}\}(.*)\{\{ end \}\}", description)
    chosen = there.replace("{{ . }}", instance) if instance else gone
    return re.sub(r"\{\{ with .*\{\{ end \}\}", lambda _: chosen, description)


def test_the_rule_about_disks_that_the_docs_have(promtool: str, tmp_path: Path) -> None:
    """It fires for a disk that is full, and for one that fills; not for one with room."""
    (rule,) = re.findall(r"^```\n(groups:\n.*?)^```", METRICS.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "disks.yml").write_text(rule)
    _run([promtool, "check", "rules", "disks.yml"], tmp_path)
    disk = '{instance="a",mountpoint="/",fstype="ext4"}'
    tests = [
        {
            "interval": "1m",
            "input_series": [
                {"series": f"node_filesystem_avail_bytes{disk}", "values": free},
                {"series": f"node_filesystem_size_bytes{disk}", "values": "1000000x600"},
            ],
            "promql_expr_test": [
                {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "9h", "exp_samples": firing},
            ],
        }
        for free, firing in (
            ("50000x600", [{"labels": "{}", "value": 1}]),
            ("900000-1000x600", [{"labels": "{}", "value": 1}]),
            ("900000x600", []),
        )
    ]
    suite = {"rule_files": ["disks.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(suite))
    _run([promtool, "test", "rules", "tests.yml"], tmp_path)


def test_places_in_the_runbook_become_links(promtool: str, tmp_path: Path) -> None:
    """The command of docs/metrics.md makes a URL of every one, and Prometheus still takes the rules."""
    (command,) = re.findall(r"`(sed -i [^`]+)`", METRICS.read_text())
    (tmp_path / ALERTS.name).write_text(ALERTS.read_text())
    _run(shlex.split(command), tmp_path)
    _run([promtool, "check", "rules", ALERTS.name], tmp_path)
    made = [
        rule["annotations"]
        for group in yaml.safe_load((tmp_path / ALERTS.name).read_text())["groups"]
        for rule in group["rules"]
    ]
    assert len(made) == len(rules())
    assert all("runbook" not in one and one["runbook_url"].startswith("https://git.example.com/") for one in made)
    assert [one["runbook_url"].rpartition("/docs/")[2] for one in made] == [
        rule["annotations"]["runbook"].removeprefix("docs/") for rule in rules()
    ]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def _test(name: str, case: Case, *, fires: bool) -> dict[str, Any]:
    series = case.bad if fires else case.well
    return {
        "name": f"{name} {'fires' if fires else 'is quiet'}",
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertname="{name}",alertstate="firing"}})',
                "eval_time": case.at,
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}] if fires else [],
            }
        ],
    }
