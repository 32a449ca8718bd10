"""The manifests are what Kubernetes takes, and speak of what codehub has."""

import os
import re
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from domain.naming import is_node_name
from settings import Settings, load_settings
from starter.embedded.probe import http_status
from starter.metrics import serving_metrics
from tests.docs.api_document import document
from tests.docs.test_commands import commands_of
from tests.docs.test_deploy import ALERTS, jobs
from tests.docs.test_docs import ROOT, problem_of
from tests.ports import free_port

FOLDER = ROOT / "deploy" / "kubernetes"
SECRET = FOLDER / "secret.yaml.example"
# The newest one that the schemas know, and one that is long in use.
VERSIONS = (kubernetes_validate.latest_version(), "1.31")
# What the cluster fills in.
FIELDS = {"spec.nodeName": "ip-10-0-0-12.example.internal", "status.hostIP": "10.0.0.12"}
# For the command of its own container, not for codehub.
FOREIGN = {"DOCKER_CONFIG", "NODE_NAME"}

Manifest = dict[str, Any]


def manifests(*kinds: str) -> list[Manifest]:
    found = [one for path in [*sorted(FOLDER.glob("*.yaml")), SECRET] for one in yaml.safe_load_all(path.read_text())]
    return [one for one in found if not kinds or one["kind"] in kinds]


def pods() -> list[Manifest]:
    return [one["spec"]["template"] for one in manifests("Deployment", "DaemonSet", "Job")]


def containers() -> Iterator[Manifest]:
    for pod in pods():
        yield from (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"])


def one_container(name: str) -> Manifest:
    (found,) = (one for one in containers() if one["name"] == name)
    return found


def environment(container: Manifest) -> dict[str, str]:
    """As the cluster gives it, the Secret's part included."""
    (secret,) = manifests("Secret")
    given = dict(secret["stringData"])
    for one in container.get("env", []):
        given[one["name"]] = one.get("value") or FIELDS[one["valueFrom"]["fieldRef"]["fieldPath"]]
    return given


@pytest.mark.parametrize("release", VERSIONS)
def test_kubernetes_takes_them(release: str) -> None:
    """By the schemas of its releases, unknown fields refused. Monitors are the Prometheus operator's: see below."""
    for one in manifests():
        if one["apiVersion"] != "monitoring.coreos.com/v1":
            kubernetes_validate.validate(one, release, strict=True)
    assert {one["kind"] for one in manifests()} == {
        *("Namespace", "Secret", "Deployment", "DaemonSet", "Service", "Ingress", "Job", "PodDisruptionBudget"),
        "PodMonitor",
    }


def test_the_check_has_teeth() -> None:
    (api,) = manifests("Deployment")
    api["spec"]["template"]["spec"]["containers"][0]["readinesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(api, VERSIONS[0], strict=True)


def test_all_of_them_are_in_one_namespace() -> None:
    (namespace,) = manifests("Namespace")
    assert {one["metadata"].get("namespace") for one in manifests() if one["kind"] != "Namespace"} == {
        namespace["metadata"]["name"]
    }


def test_images_are_pinned_to_this_version() -> None:
    assert {one["image"] for one in containers()} == {f"registry.example.com/codehub:{version('codehub')}"}


def test_only_settings_are_set_and_codehub_takes_them() -> None:
    known = {name.upper() for name in Settings.model_fields} | FOREIGN
    for one in containers():
        assert environment(one).keys() <= known
        load_settings(environment(one))


def test_the_secret_holds_no_secret() -> None:
    (secret,) = manifests("Secret")
    assert all(re.fullmatch(r"\d*", value) for value in secret["stringData"].values())
    assert {"DATABASE_URL", "REDIS_URL", "S3_ENDPOINT", "S3_ACCESS_KEY", "S3_SECRET_KEY", "TEMPORAL_ADDRESS"} <= set(
        secret["stringData"]
    )
    for one in containers():
        assert one["envFrom"] == [{"secretRef": {"name": secret["metadata"]["name"]}}], one["name"]


def test_no_service_of_the_cluster_looks_like_a_setting() -> None:
    """One that is called `codehub` would set CODEHUB_PORT=tcp://…, and the start would end with that."""
    assert all(pod["spec"]["enableServiceLinks"] is False for pod in pods())


def test_what_the_containers_run_exists() -> None:
    for one in containers():
        if "args" in one:
            assert problem_of(one["args"]) is None, one["name"]


def test_a_node_is_called_as_codehub_allows(tmp_path: Path) -> None:
    """Names of cluster nodes may have dots. The container's own command, with a codehub that tells what it is told."""
    worker = one_container("worker")
    told = tmp_path / "codehub"
    told.write_text('#!/bin/sh\necho "$@"\n')
    told.chmod(0o755)
    search = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        worker["command"],
        env={**environment(worker), "PATH": search},
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    *command, node = done.stdout.split()
    assert command == ["worker", "--node"]
    assert is_node_name(node)


async def test_probes_ask_for_what_is_served() -> None:
    """And never for /health/ready: with Redis or Temporal away it is 503, and would take all IDEs along."""
    api, worker = one_container("api"), one_container("worker")
    port = free_port()
    async with serving_metrics(Settings(metrics_port=port), {}):
        asked = worker["readinessProbe"]["httpGet"]["path"]
        served = {
            "api": set(document()["paths"]),
            "worker": {asked} if await http_status(port, asked) == 200 else set(),
        }
    assert _ports(api) == {"http": Settings().codehub_port}
    assert _ports(worker) == {"metrics": int(environment(worker)["METRICS_PORT"])}
    for one in (api, worker):
        probes = [one[name] for name in one if name.endswith("Probe")]
        assert probes
        for probe in probes:
            assert probe["httpGet"]["path"] in served[one["name"]]
            assert probe["httpGet"]["path"] != "/health/ready"
            assert probe["httpGet"]["port"] in _ports(one)
    assert api["readinessProbe"]["timeoutSeconds"] > 2
    assert environment(api)["CODEHUB_HOST"] == "0.0.0.0"
    assert "livenessProbe" not in worker, "it answers only once PostgreSQL and Temporal have"


def test_nobody_is_killed_while_it_drains() -> None:
    for pod in pods():
        for one in pod["spec"]["containers"]:
            if one["name"] == "worker":
                assert pod["spec"]["terminationGracePeriodSeconds"] >= Settings().worker_drain_seconds + 5
            elif one["name"] == "api":
                wait = int(one["lifecycle"]["preStop"]["exec"]["command"][1])
                assert pod["spec"]["terminationGracePeriodSeconds"] >= wait + 10


def test_only_the_worker_gets_the_engine() -> None:
    """With the host's network, for the packet filter; all others have no right at all."""
    holders = {one["name"] for one in containers() if one.get("volumeMounts")}
    assert holders == {"image", "worker"}
    for pod in pods():
        privileged = pod["metadata"]["labels"]["app"] == "codehub-worker"
        assert pod["spec"].get("hostNetwork", False) is privileged
        for one in (*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]):
            context = one["securityContext"]
            assert context["capabilities"]["drop"] == ["ALL"]
            assert context["allowPrivilegeEscalation"] is False
            assert privileged or (context["readOnlyRootFilesystem"] and pod["spec"]["securityContext"]["runAsNonRoot"])
    assert one_container("worker")["securityContext"]["capabilities"]["add"] == ["NET_ADMIN"]


def test_names_lead_to_each_other() -> None:
    """Ingress to Service to pods; each monitor to a port of its pods, with the token of the Secret."""
    labels = {pod["metadata"]["labels"]["app"]: pod["spec"]["containers"][0] for pod in pods()}
    (service,) = manifests("Service")
    (ingress,) = manifests("Ingress")
    (secret,) = manifests("Secret")
    assert service["spec"]["ports"][0]["targetPort"] in _ports(labels[service["spec"]["selector"]["app"]])
    for rule in ingress["spec"]["rules"]:
        backend = rule["http"]["paths"][0]["backend"]["service"]
        assert backend["name"] == service["metadata"]["name"]
        assert backend["port"]["name"] == service["spec"]["ports"][0]["name"]
    for budget in manifests("PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"]["app"] in labels
    monitors = manifests("PodMonitor")
    assert {one["metadata"]["name"] for one in monitors} == {"codehub-api", "codehub-worker"}
    for monitor in monitors:
        spec = monitor["spec"]
        assert set(spec) == {"jobLabel", "selector", "podMetricsEndpoints"}
        # The job is the value of this label, and the alerts go by its name.
        assert spec["jobLabel"] == "app"
        assert spec["selector"]["matchLabels"]["app"] in jobs()
        (endpoint,) = spec["podMetricsEndpoints"]
        assert endpoint["port"] in _ports(labels[spec["selector"]["matchLabels"]["app"]])
        assert endpoint["path"] == "/metrics"
        credentials = endpoint["authorization"]["credentials"]
        assert credentials["name"] == secret["metadata"]["name"]
        assert credentials["key"] in secret["stringData"]


def test_the_doctor_is_told_where_the_api_is() -> None:
    """There is none beside a worker: the name is the Service's, in the same namespace, by the cluster's DNS."""
    (line,) = (line for _, line in commands_of("kubectl") if "codehub doctor" in line)
    (service,) = manifests("Service")
    (port,) = service["spec"]["ports"]
    assert f"env CODEHUB_HOST={service['metadata']['name']} CODEHUB_PORT={port['port']} codehub doctor" in line
    (workers,) = manifests("DaemonSet")
    assert workers["spec"]["template"]["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


@pytest.mark.parametrize("end", ["Complete", "Failed"])
@pytest.mark.parametrize("document", ["production.md", "upgrades.md"])
def test_a_job_is_waited_for_however_it_ends(document: str, end: str, tmp_path: Path) -> None:
    """By the line of the document, and a kubectl that knows nothing at first, then what newer clusters say before the
    end, then the end."""
    text = (ROOT / "docs" / document).read_text()
    (line,) = re.findall(r"^(?:ended\(\) \{ )?until kubectl .*$", text, re.MULTILINE)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '*logs*codehub-migrate) echo "its log" ;;\n'
        "*get*codehub-migrate*conditions*) echo x >> asked\n"
        f'    case $(wc -l < asked) in 1) ;; 2) printf FailureTarget ;; *) printf "FailureTarget {end}" ;; esac ;;\n'
        "*) exit 1 ;;\n"
        "esac\n"
    )
    kubectl.chmod(0o755)
    script = line.replace("sleep 2", "sleep 0")
    if line.startswith("ended()"):
        script += "\nended codehub-migrate"
    search = f"{tmp_path}:{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=tmp_path,
        env={"PATH": search},
        check=True,
        capture_output=True,
        text=True,
        timeout=30,
    )
    told = done.stdout.splitlines()
    assert told[0] == f"FailureTarget {end}"
    assert told[1:] == (["its log"] if line.startswith("ended()") else [])


def test_the_rules_become_an_object_of_the_operator() -> None:
    """By the command of docs/production.md, up to what is handed to kubectl."""
    (command,) = re.findall(r"^(\{ .*alerts\.yml; \}) \|", (ROOT / "docs" / "production.md").read_text(), re.MULTILINE)
    done = subprocess.run(["sh", "-c", command], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30)
    made = yaml.safe_load(done.stdout)
    assert (made["kind"], made["metadata"]["namespace"]) == ("PrometheusRule", "codehub")
    assert made["spec"] == yaml.safe_load(ALERTS.read_text())


def _ports(container: Manifest) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}
