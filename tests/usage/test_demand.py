"""Needs as measured: queries to Prometheus, and which pods are of which workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from gpuform.usage.demand import running_needs, with_measured
from gpuform.usage.prometheus import Prometheus
from infra.planner.need import Need
from tests.build.clusters import pod
from tests.build.environments import on

pytestmark = pytest.mark.unit

USED = {
    "search/rank-7d9c5b6f4-abcde": 0.4,
    "search/rank-7d9c5b6f4-fghij": 0.6,
    "search/rank-big-0": 2.0,
    "search/rank-Not.A-suffix": 9.0,
    "lab/idle": 0.0,
    "lab/train-0-x7k2p": 7.5,
    "other/rank-7d9c5b6f4-abcde": 0.9,
}
MEMORY = {"search/rank-7d9c5b6f4-abcde": 5000.0, "lab/train-0-x7k2p": 40000.4}


class Played:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def get(self, path: str, *, params: Mapping[str, str]) -> httpx.Response:
        self.asked.append(params["query"])
        values = MEMORY if "FB_USED" in params["query"] else USED
        result: list[dict[str, Any]] = []
        for name, value in values.items():
            namespace, _, pod = name.partition("/")
            result.append({"metric": {"namespace": namespace, "pod": pod}, "value": [0, str(value)]})
        return httpx.Response(200, json={"status": "success", "data": {"result": result}})


def test_a_need_is_the_peak_of_its_workloads_pods() -> None:
    names = ("search/rank", "search/rank-big", "lab/idle", "lab/none", "lab/train")
    counts = {"lab/train": 8}
    needs = [Need(name, memory_mib=9000, compute=0.5, count=counts.get(name, 1)) for name in names]
    played = Played()
    found = {need.name: (need, seen) for need, seen in with_measured(Prometheus(played, ""), needs, "14d")}
    rank, big, idle, none, train = (found[name] for name in names)
    assert (rank[0].compute, rank[0].memory_mib, rank[1]) == (0.6, 5000, True)
    assert (big[0].compute, big[0].memory_mib) == (1.0, 9000)
    assert (idle[0].compute, idle[1]) == (0.01, True)
    assert none == (needs[3], False)
    assert (train[0].compute, train[0].memory_mib) == (0.5, 40000)
    assert all("[14d]" in query for query in played.asked)


def test_controllers_of_one_name_are_two_demands() -> None:
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    pods = [pod(f"{kind.lower()}-0", owner=(kind, "web"), **gpu) for kind in ("StatefulSet", "Job")]
    env = on("embedded", {"gpu": {"models": ["T4"], "count": 4}})
    found = [need.name for need in running_needs(env, pods) if isinstance(need, Need)]
    assert found == ["lab/web", "lab/web-and"]
