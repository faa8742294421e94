"""Dashboard queries, alerts, `top` and `report` on the stack local: a real Prometheus, simulated metrics.

Karpenter's limits do not exist on this stack: tests/plan/dashboards tests them with made-up metrics.
promtool provokes every alert (tests/plan/rules); here one alert of each source of metrics is provoked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

import httpx
import pytest

from gpuform.usage.prometheus import Prometheus, connect
from infra.config import load
from infra.plan.dashboards import dashboards
from infra.plan.rules import alerts
from lab.plane.layout import prometheus_port
from tests.journey.conftest import Checkout, close, make_checkout
from tests.plan.dashboards.reading import filled, queries
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

SICK = "v100-0"

ONLY_WHEN = {
    "capacity/Pending pods/A": "a pod waits for a GPU",
    "capacity/Pending pods by reason/A": "a pod waits for a GPU",
    "health/Firing/A": "an alert fires",
    "health/Faults/A": "a GPU has a fault",
    "health/Faults by class/A": "a GPU has a fault",
    "health/XIDs/A": "a GPU had an XID within five minutes",
}
"""Queries without series on a healthy cluster; each is provoked."""

WAITS = """
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: default}
spec:
  tolerations: [{key: nvidia.com/gpu, operator: Exists}]
  containers:
    - {name: main, image: none, resources: {limits: {nvidia.com/gpu: 4096}}}
"""


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    checkout = make_checkout(tmp_path_factory.mktemp("dashboards"))
    # CERN's flavors have no list price, and the other shared pool's pods have no owner.
    checkout.change(lambda env: env.setdefault("cost", {"prices": {"g2.5xlarge": 0.6, "g4.p1.40g": 2.4}}))
    checkout.change(lambda env: env.setdefault("namespaces", [{"name": "lab", "quota": {"t4-shared": 2}}]))
    checkout.change(lambda env: env.update(monitoring={"interval": "5s"}))
    try:
        checkout.gpuform("local", "up")
        yield checkout
    finally:
        close(checkout)


@pytest.fixture
def prometheus(monitored: Checkout) -> Iterator[Prometheus]:
    env = load(monitored.paths.root / "Pulumi.local.yaml")
    with connect(env, monitored.paths, monitored.paths.kubeconfig, None, prometheus_port) as found:
        yield found


def require_answers(
    prometheus: Prometheus, silent: dict[str, str], nothing_but: Collection[str], seconds: float
) -> None:
    """Repeat silent queries until all but ``nothing_but`` had a result; a series may come and go."""

    def look() -> set[str]:
        for name in [name for name, expr in silent.items() if prometheus.query(expr)]:
            del silent[name]
        return set(silent)

    until(look, lambda left: left <= set(nothing_but), seconds)


def test_grafana_is_given_every_dashboard(monitored: Checkout) -> None:
    found = json.loads(
        monitored.kubectl("get", "configmaps", "-n", "monitoring", "-l", "grafana_dashboard=1", "-o", "json")
    )["items"]
    given = [json.loads(text) for item in found for text in item["data"].values()]
    made = dashboards(load(monitored.paths.root / "Pulumi.local.yaml"))
    assert sorted(given, key=lambda model: model["uid"]) == sorted(
        made.values(), key=lambda model: model["uid"]
    )


def test_top_and_the_report_have_every_gpu_measured(monitored: Checkout) -> None:
    """Shares, slices and whole GPUs alike; on this cluster every value is known."""

    def measured(found: dict[str, Any]) -> list[dict[str, Any]]:
        return [one for node in found["nodes"] for gpu in node["gpus"] for one in (gpu["slices"] or [gpu])]

    found = until(
        lambda: json.loads(monitored.gpuform("top", "--json").stdout),
        lambda found: all(one["util"] is not None for one in measured(found)),
        120,
    )
    gpus, devices = [gpu for node in found["nodes"] for gpu in node["gpus"]], measured(found)
    assert found["prometheus"] == {"answers": True, "why": ""}
    assert len(gpus) == 13
    assert all(None not in (one["util"], one["memory_total_bytes"]) for one in devices)
    assert all(gpu["power_watts"] > 0 for gpu in gpus)
    pods = {pod["name"].partition("-")[0]: pod for one in devices for pod in one["pods"]}
    assert pods.keys() == {"simulation", "inference", "notebook", "tf", "pod"}
    assert all(pod["used_gpus"] is not None for pod in pods.values())
    assert not any(node["pods"] for node in found["nodes"]), "of every pod it is known which GPU it has"
    shared = next(node for node in found["nodes"] if sum(len(gpu["pods"]) for gpu in node["gpus"]) > 1)
    assert {pod["attributed"] for pod in shared["gpus"][0]["pods"]} == {True}
    assert not any(pod["attributed"] for one in devices for pod in one["pods"] if len(one["pods"]) == 1)
    monitored.gpuform("report", "-o", "page.html")
    page = (monitored.paths.root / "page.html").read_text(encoding="utf-8")
    assert page.count('class="node"') == 7
    assert 'class="bar"' in page
    assert "not measured" not in page


def test_prometheus_evaluates_every_rule_and_no_alert_fires(
    monitored: Checkout, prometheus: Prometheus
) -> None:
    url = f"http://127.0.0.1:{prometheus_port(monitored.paths)}/api/v1/rules"

    def rules() -> list[dict[str, Any]]:
        groups = httpx.get(url, trust_env=False).json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    found = until(rules, lambda found: all(rule["health"] != "unknown" for rule in found), 240)
    assert {rule["name"]: rule.get("lastError") for rule in found if rule["health"] != "ok"} == {}
    every = alerts.all_alerts(load(monitored.paths.root / "Pulumi.local.yaml"))
    assert {one.name for one in every} <= {rule["name"] for rule in found}
    assert [alert for alert in prometheus.alerts() if alert.state == "firing"] == []


def test_every_query_returns_series(monitored: Checkout, prometheus: Prometheus) -> None:
    """After a while under load; queries that are silent on a healthy cluster are then provoked."""
    models = dashboards(load(monitored.paths.root / "Pulumi.local.yaml"))
    silent = {one.name: filled(one.expr) for one in queries(models)}
    assert ONLY_WHEN.keys() <= silent.keys()
    require_answers(prometheus, silent, ONLY_WHEN, 240)
    provoke(monitored)
    require_answers(prometheus, silent, (), 120)


def provoke(checkout: Checkout) -> None:
    """A pod that waits, a GPU with a fault, and a MIG layout that does not exist."""
    checkout.kubectl("apply", "-f", "-", input=WAITS)
    checkout.gpuform("simulate", "fault", SICK, "--gpu", "0", "--xid", "79")
    checkout.kubectl("label", "node", "a100-7-0", "nvidia.com/mig.config=nosuch", "--overwrite")


ALERTS = {
    "GpuXidReplace": {"node": SICK, "pool": "v100", "gpu": "0", "xid": "79", "class": "replace"},
    "GpuPodPending": {"namespace": "default", "pod": "waits", "reason": "too_large"},
    "GpuMigConfigFailed": {"node": "a100-7-0", "pool": "a100-7", "state": "failed"},
}
"""Pending or firing alerts: from an exporter of DCGM, the scheduler and labels of nodes."""


def test_alerts_of_each_source_name_what_is_wrong(monitored: Checkout, prometheus: Prometheus) -> None:
    provoke(monitored)

    def missing() -> set[str]:
        found = prometheus.alerts()
        return {
            name
            for name, labels in ALERTS.items()
            if not any(one.name == name and labels.items() <= one.labels.items() for one in found)
        }

    assert until(missing, lambda names: not names, 120) == set()
