"""Every dashboard query, `top` and `report` on the stack local: a real Prometheus and simulated metrics.

Karpenter's limits do not exist on this stack: tests/plan/dashboards tests them with made-up metrics.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator

import pytest

from gpuform.usage.prometheus import Prometheus, reach
from infra.config import load
from infra.plan.dashboards import dashboards
from lab.plane.layout import prometheus_port
from tests.journey.conftest import Checkout, close, make_checkout
from tests.plan.dashboards.reading import filled, queries

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
    with reach(env, monitored.paths, monitored.paths.kubeconfig, None, prometheus_port) as found:
        yield found


class Watch:
    def __init__(self, checkout: Checkout, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        models = dashboards(load(checkout.paths.root / "Pulumi.local.yaml"))
        self.silent = {one.name: filled(one.expr) for one in queries(models)}

    def until(self, nothing_but: Collection[str], seconds: float) -> bool:
        """Repeat silent queries until all but ``nothing_but`` had a result; a series may come and go."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.silent = {
                name: expr for name, expr in self.silent.items() if not self._prometheus.query(expr)
            }
            if self.silent.keys() <= set(nothing_but):
                return True
            time.sleep(0.5)
        return False


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
    deadline = time.monotonic() + 120
    while True:
        found = json.loads(monitored.gpuform("top", "--json").stdout)
        gpus = [gpu for node in found["nodes"] for gpu in node["gpus"]]
        devices = [one for gpu in gpus for one in (gpu["slices"] or [gpu])]
        if all(one["util"] is not None for one in devices) or time.monotonic() > deadline:
            break
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


def test_every_query_returns_series(monitored: Checkout, prometheus: Prometheus) -> None:
    """After a while under load; queries that are silent on a healthy cluster are then provoked."""
    watch = Watch(monitored, prometheus)
    assert ONLY_WHEN.keys() <= watch.silent.keys()
    assert watch.until(ONLY_WHEN, 240), watch.silent
    pod = monitored.paths.root / "waits.yaml"
    pod.write_text(WAITS, encoding="utf-8")
    monitored.kubectl("apply", "-f", str(pod))
    monitored.gpuform("simulate", "fault", SICK, "--xid", "79")
    assert watch.until((), 120), watch.silent
