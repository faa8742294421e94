"""ResourceQuotas and LimitRanges that namespaces of an existing cluster have already."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.clouds.existing.preflight import limits
from gpuform.clouds.existing.preflight.cluster import LiveCluster
from gpuform.kubernetes.kinds import LIMIT_RANGE, RESOURCE_QUOTA
from tests.clouds.existing.test_preflight import env

pytestmark = pytest.mark.unit

WORK = {
    "name": "w",
    "kind": "deployment",
    "pool": "t4",
    "replicas": 2,
    "cpu": 2,
    "memory": "4Gi",
    "image": "a:1",
}
Json = dict[str, Any]


def quota(hard: Json, namespace: str = "default", name: str = "q", **spec: Any) -> Json:
    return {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard, **spec}}


def limit(namespace: str = "default", type: str = "Container", **entry: Json) -> Json:
    return {"metadata": {"name": "r", "namespace": namespace}, "spec": {"limits": [{"type": type, **entry}]}}


def judge(quotas: list[Json], ranges: list[Json], *works: Json) -> tuple[str, str]:
    live = {RESOURCE_QUOTA: quotas, LIMIT_RANGE: ranges}
    declared = env(own={"workloads": list(works or (WORK,))})
    found = limits.judge(LiveCluster(declared, False, live.__getitem__))
    return found.verdict, found.fact


@pytest.mark.parametrize(
    ("hard", "fact"),
    [
        ({"requests.nvidia.com/gpu": "1"}, "allows requests.nvidia.com/gpu 1, and 2 is declared"),
        ({"requests.cpu": "3500m"}, "allows requests.cpu 3500m, and 4 is declared"),
        ({"cpu": "3"}, "allows cpu 3, and 4 is declared"),
        ({"limits.memory": "7Gi"}, "allows limits.memory 7Gi, and 8Gi is declared"),
        ({"pods": "1"}, "allows pods 1, and 2 is declared"),
        ({"limits.cpu": "100"}, "requires a CPU limit, which pods do not declare"),
    ],
)
def test_a_quota_of_others_refuses_pods(hard: Json, fact: str) -> None:
    assert judge([quota(hard)], []) == ("FAIL", f"ResourceQuota default/q {fact}")


@pytest.mark.parametrize(
    "item",
    [
        quota({"requests.nvidia.com/gpu": "2", "requests.cpu": "4", "limits.memory": "8Gi", "pods": "1P"}),
        quota({"pods": "0"}, "other"),
        quota({"pods": "0"}, name="gpuform-gpus"),
        quota({"pods": "0"}, scopes=["Terminating"]),
        quota({"pods": "0"}, scopeSelector={"matchExpressions": []}),
        quota({"services": "0", "count/jobs.batch": "5k"}),
    ],
)
def test_other_quotas_do_not(item: Json) -> None:
    assert judge([item], [])[0] == "PASS"


@pytest.mark.parametrize(
    ("entry", "fact"),
    [
        ({"max": {"cpu": "1"}}, "allows each Container cpu 1, and 2 is declared"),
        ({"max": {"nvidia.com/gpu": "0"}}, "allows each Container nvidia.com/gpu 0, and 1 is declared"),
        (
            {"default": {"cpu": "500m", "memory": "1Gi"}},
            "limits pods by default to cpu 500m, and 2 is declared",
        ),
    ],
)
def test_a_range_of_others_refuses_pods(entry: Json, fact: str) -> None:
    """The API server refuses a request above the limit that it has filled in."""
    assert judge([], [limit(**entry)]) == ("FAIL", f"LimitRange default/r {fact}")
    assert judge([], [limit("other", **entry)])[0] == "PASS"


def test_a_range_gives_the_cpu_limit_that_a_quota_requires() -> None:
    required = [quota({"limits.cpu": "100"})]
    assert judge(required, [limit(default={"cpu": "2"})])[0] == "PASS"
    assert judge(required, [limit(max={"cpu": "2", "memory": "4Gi"})])[0] == "PASS"
    assert judge(required, [limit("other", default={"cpu": "2"})])[0] == "FAIL"
    assert judge(required, [limit(default={"memory": "8Gi"})])[0] == "FAIL"


def test_every_workload_of_a_namespace_counts() -> None:
    elsewhere = {**WORK, "name": "x", "namespace": "other"}
    assert judge([quota({"pods": "2"})], [], WORK, elsewhere)[0] == "PASS"
    assert judge([quota({"pods": "2"})], [], WORK, {**WORK, "name": "x"})[0] == "FAIL"
    assert [check.subject for check in limits.checks(env(), "kubectl")] == []
