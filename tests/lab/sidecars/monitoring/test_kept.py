"""A real Prometheus and a real kube-state-metrics: they run while a stack declares them, as declared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.model.base.namespaces import HEALTH
from infra.plan import health, quotas
from lab.plane.processes import MONITORING_KEEPER, PROMETHEUS, STATE_METRICS
from lab.toolchain import Toolchain
from tests.build.environments import on
from tests.lab.plane.conftest import OwnControlPlane, removed
from tests.lab.sidecars.monitoring.site import (
    NAMESPACE,
    ask,
    exporters,
    may_read,
    prometheus,
    rules,
    state_metrics,
)
from tests.lab.simulator.site import TOOLKIT, Site
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

CHART = Path(__file__).parents[4] / "charts" / "gpu-operator-sim"
UP = {"record": "own:up", "expr": 'sum(up{job="nvidia-dcgm-exporter"})'}
ALERT = {"alert": "Always", "expr": "vector(1)", "for": "10s", "labels": {"severity": "info"}}
T4S = {"name": "t4", "machine": "g2.5xlarge", "nodes": 2}
HEALTHY = on("embedded", T4S, monitoring={}, health={"mode": "cordon"})
# The test scrapes the exporters itself.
VALUES = {
    "driver": {"version": "580.126.09"},
    "toolkit": TOOLKIT,
    "dcgmExporter": {"serviceMonitor": {"enabled": False}},
}


class Monitored(OwnControlPlane):
    def begin(self) -> None:
        self.plane.start()
        self.plane.prepare_monitoring()

    def send(self, *objects: dict[str, Any]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("apply", "--server-side", "-f", "-", input=text)

    def ask(self, query: str) -> dict[str, float]:
        member = next((item for item in self.plane.status().members if item.name == PROMETHEUS), None)
        return ask(member.port, query) if member and member.port else {}

    def value(self, query: str) -> float | None:
        return next(iter(self.ask(query).values()), None)

    def kept(self) -> set[str]:
        return {PROMETHEUS, STATE_METRICS} & set(self.pids())

    def log(self) -> str:
        return self.layout.log(MONITORING_KEEPER).read_text()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Monitored]:
    with removed(Monitored(tmp_path_factory.mktemp("monitored"), toolchain)) as cluster:
        cluster.begin()
        site = Site(cluster)
        site.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu-operator"}})
        site.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name in ("t4-0", "t4-1"):
            site.node(name, "1eb8")
        site.node("cpu-0")
        values = cluster.state / "values.yaml"
        values.write_text(yaml.safe_dump(VALUES))
        place = ["-n", "gpu-operator", "-f", str(values)]
        site.helm("upgrade", "--install", "gpu-operator", str(CHART), *place)
        yield cluster


@pytest.fixture
def declared(bare: Monitored) -> Monitored:
    """The same with monitoring, which is declared again if a test has removed it."""
    bare.begin()
    targets = ["services", "endpoints", "endpointslices", "pods"]
    bare.send(
        *may_read("prometheus", ["", "discovery.k8s.io"], targets),
        *state_metrics(),
        exporters(),
        rules(UP, ALERT),
        prometheus(scrapeInterval="2s", evaluationInterval="2s"),
    )
    until(lambda: bare.kept() == {PROMETHEUS, STATE_METRICS}, what=bare.log)
    return bare


def test_nothing_of_it_runs_until_it_is_declared(bare: Monitored) -> None:
    until(lambda: bare.layout.monitor.joinpath("said.json").is_file(), what=bare.log)
    assert bare.kept() == set()
    rows = {member.name: member for member in bare.plane.status().members}
    assert rows[MONITORING_KEEPER].running
    assert not {PROMETHEUS, STATE_METRICS} & set(rows)


def test_rules_are_followed_and_wrong_ones_leave_the_old_ones(declared: Monitored) -> None:
    until(lambda: declared.value("own:up") == 2, what=declared.log)
    firing = 'ALERTS{alertname="Always",alertstate="firing"}'
    until(lambda: declared.ask(firing), what="it does not fire", seconds=60)
    before = declared.pids()[PROMETHEUS]
    declared.send(rules({**UP, "expr": "vector(7)"}))
    until(lambda: declared.value("own:up") == 7, what=declared.log)
    declared.send(rules({**UP, "expr": "sum(("}))
    until(lambda: declared.plane.status().sidecar_messages, what=declared.log)
    (output,) = declared.plane.status().sidecar_messages
    assert output.startswith("rules monitoring/own: ")
    assert "parse error" in output
    assert output.endswith("the old ones stay")
    assert declared.value("own:up") == 7
    declared.send(rules(UP))
    until(lambda: declared.value("own:up") == 2, what=declared.log)
    until(lambda: not declared.plane.status().sidecar_messages, what="the notice stays")
    assert declared.pids()[PROMETHEUS] == before, "a reload is enough"


def test_the_health_loop_acts_on_what_prometheus_records(declared: Monitored) -> None:
    spaces = [item for item in quotas.namespaces(HEALTHY) if item["metadata"]["name"] == HEALTH]
    own = health.manifests(HEALTHY)
    declared.send(*spaces)
    declared.send(*own)
    declared.kubectl("label", "node", "t4-0", "t4-1", "gpuform.io/pool=t4")
    fault = {"node": "t4-0", "gpu": "0", "UUID": "GPU-0", "xid": "79", "class": "replace", "reason": "xid"}
    recorded = {"record": "gpuform:fault:active", "expr": "vector(1)", "labels": fault}
    declared.send(rules(recorded, name="faults"))

    def taints(name: str) -> list[str]:
        node = json.loads(declared.kubectl("get", "node", name, "-o", "json"))
        return [taint["key"] for taint in node["spec"].get("taints", [])]

    audit = declared.paths.logs / f"{HEALTH}.log"
    until(lambda: "gpuform.io/gpu-unhealthy" in taints("t4-0"), what=declared.log, seconds=60)
    assert "gpuform.io/gpu-unhealthy" not in taints("t4-1")
    assert [json.loads(line)["node"] for line in audit.read_text().splitlines() if '"cordon"' in line] == [
        "t4-0"
    ]
    # Its own metrics are scraped by the plan's ServiceMonitor.
    until(lambda: declared.value("gpuform_health_unhealthy_nodes") == 1, what=declared.log, seconds=60)
    (labels,) = [json.loads(item) for item in declared.ask("gpuform_health_actions_total")]
    assert (labels["node"], labels["class"], labels["action"]) == ("t4-0", "replace", "cordon")
    runs = declared.layout.monitor / "health" / "health.py"
    assert running(runs)
    declared.kubectl("delete", "deployment", HEALTH, "-n", HEALTH)
    until(lambda: not running(runs), what="the loop still runs, but its Deployment is deleted")
    declared.kubectl("delete", "namespace", HEALTH, "--wait=false")
    declared.kubectl("delete", "prometheusrule", "faults", "-n", NAMESPACE)


def running(program: Path) -> bool:
    return any(str(program).encode() in read(item) for item in Path("/proc").glob("[0-9]*/cmdline"))


def read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def test_killed_they_come_back(declared: Monitored) -> None:
    before = declared.pids()
    declared.kill(PROMETHEUS, STATE_METRICS)
    until(lambda: declared.kept() == {PROMETHEUS, STATE_METRICS}, what=declared.log)
    declared.kill(MONITORING_KEEPER)
    until(lambda: declared.kept() == set(), what="they still run, but their keeper has ended")
    declared.begin()
    until(lambda: declared.kept() == {PROMETHEUS, STATE_METRICS}, what=declared.log)
    assert not set(before.values()) & {declared.pids()[name] for name in (MONITORING_KEEPER, PROMETHEUS)}
    until(lambda: declared.value("own:up") == 2, what=declared.log)


def test_they_go_with_the_declaration_and_with_the_plane(declared: Monitored) -> None:
    declared.kubectl("delete", "prometheus", "own", "-n", NAMESPACE)
    until(lambda: declared.kept() == set(), what=declared.log)
    declared.send(prometheus())
    until(lambda: declared.kept() == {PROMETHEUS, STATE_METRICS}, what=declared.log)
    declared.plane.stop()
    assert declared.pids() == {}
    declared.begin()
    until(lambda: declared.kept() == {PROMETHEUS, STATE_METRICS}, what=declared.log)
