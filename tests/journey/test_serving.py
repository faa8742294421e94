"""A scaled workload as a user has it: scaled, kept through updates, and kept when what scales it goes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.journey.conftest import Checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]


def serving(environment: dict[str, Any], pods: int = 0, image: str = "a:1") -> None:
    """Scaled to ``pods`` by what the stack's own Prometheus answers; 0: three pods, without scale."""
    work: dict[str, Any] = {"name": "web", "namespace": "lab", "kind": "inference", "image": image}
    work["metrics"] = {}  # so that pods with and without a query are the same
    scale = {"max": 6, "qps_per_replica": 100, "cooldown_seconds": 1, "query": f"vector({pods * 100})"}
    environment.update(
        pools=[{"name": "cpu", "machine": "m6i.4xlarge", "nodes": 1}],
        workloads=[work | ({"scale": scale} if pods else {"replicas": 3})],
        monitoring={"dashboards": False, "interval": "5s"},
    )


def pods(checkout: Checkout) -> dict[str, str]:
    """Uid of each pod by name."""
    items = json.loads(checkout.kubectl("get", "pods", "-n", "lab", "-o", "json"))["items"]
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in items}


def test_pods_outlive_what_scales_them(fresh: Checkout) -> None:
    fresh.change(serving)
    fresh.gpuform("local", "up")
    first = until(lambda: pods(fresh), lambda found: len(found) == 3)
    fresh.change(lambda environment: serving(environment, 4))
    fresh.gpuform("local", "up")
    found = until(lambda: pods(fresh), lambda found: len(found) == 4, seconds=120)
    assert first.items() <= found.items(), "the first scale starts again from one pod"
    assert " unchanged in " in fresh.gpuform("local", "up").stdout
    fresh.change(lambda environment: serving(environment, 4, image="a:2"))
    fresh.gpuform("local", "up")
    found = until(lambda: pods(fresh), lambda found: len(found) == 4)
    assert fresh.gpuform("drift", "local").stdout == "local: no drift\n"
    # All of it goes at once: KEDA's finalizer on the ScaledObject is taken off before KEDA ends.
    fresh.change(lambda environment: (serving(environment, image="a:2"), environment.pop("monitoring")))
    fresh.gpuform("local", "up")
    left = until(lambda: pods(fresh), lambda found: len(found) == 3)
    assert left.items() <= found.items()
    assert "keda" not in fresh.kubectl("get", "crds,namespaces,apiservices", "-o", "name")
    assert "keda-operator" not in fresh.kubectl("get", "deployments", "-A", "-o", "name")
    fresh.gpuform("destroy", "local", "--yes")
