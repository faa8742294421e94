"""Devices allocated by claim in a rehearsal: offered by nodes, requested by and allocated to pods."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.usage.claims import CLAIMS_PATH, SLICES_PATH
from infra.model.workload import PodWorkload
from lab.rehearse.cluster import NODES, PODS, Cluster
from lab.rehearse.watch import Watch
from lab.rehearse.workloads import refusals
from tests.plan.aws_environments import CLAIMED, aws

pytestmark = pytest.mark.unit


def device(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "attributes": {"type": {"string": kind}, "uuid": {"string": f"uuid-{name}"}}}


def claim(**allocated: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": "mig.nvidia.com", "count": 2}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return {"metadata": {"namespace": "lab", "name": "a-gpu-x"}, "spec": spec, "status": allocated}


class Recorded(Cluster):
    def __init__(self, found: dict[str, list[dict[str, Any]]]) -> None:
        self.found = found

    def items(self, path: str) -> list[dict[str, Any]]:
        return self.found.get(path, [])


SLICE = {
    "driver": "gpu.nvidia.com",
    "nodeName": "n",
    "pool": {"name": "n", "generation": 1},
    "devices": [device("gpu-0-mig-a", "mig"), device("gpu-0-mig-b", "mig"), device("gpu-1", "gpu")],
}
RESULTS = [{"pool": "n", "device": f"gpu-0-mig-{name}", "driver": "gpu.nvidia.com"} for name in "ab"]
STATUS = {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "a-gpu-x"}]}
FOUND: dict[str, list[dict[str, Any]]] = {
    NODES: [{"metadata": {"name": "n", "uid": "u"}, "status": {"allocatable": {"cpu": "4"}}}],
    PODS: [
        {"metadata": {"name": "a", "namespace": "lab"}, "spec": {"containers": [{}]}, "status": STATUS},
    ],
    SLICES_PATH: [{"spec": SLICE}],
    CLAIMS_PATH: [claim(allocation={"devices": {"results": RESULTS}})],
}


def test_they_count_by_class_and_are_known_by_their_uuid() -> None:
    now = Watch(Recorded(FOUND), "labs", by_claim=True).look()
    assert now.nodes[0].offers == {"cpu": 4, "mig.nvidia.com": 2, "gpu.nvidia.com": 1}
    assert now.pods[0].asks == {"mig.nvidia.com": 2}
    assert now.pods[0].devices == ("uuid-gpu-0-mig-a", "uuid-gpu-0-mig-b")


def test_a_claim_that_waits_asks_and_has_nothing() -> None:
    now = Watch(Recorded({**FOUND, CLAIMS_PATH: [claim()]}), "labs", by_claim=True).look()
    assert (now.pods[0].asks, now.pods[0].devices) == ({"mig.nvidia.com": 2}, ())


def test_nobody_looks_where_no_pool_is_claimed() -> None:
    assert Watch(Recorded(FOUND), "labs").look().nodes[0].offers == {"cpu": 4}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"gpu": {"compute": "8.9"}}, []),
        ({"gpu": {"compute": "9.0"}}, [("p0", "compute capability 9.0 or later, its models are L4")]),
        ({"count": 5}, [("p0", "GPUs, 5 requested of 4 for claims")]),
        ({"slice": "1g.5gb"}, [("p0", "slice, it has whole GPUs for claims, not 1g.5gb")]),
    ],
)
def test_a_workload_that_claims_hears_what_its_pool_cannot_give(
    asked: dict[str, Any], said: list[tuple[str, str]]
) -> None:
    work = PodWorkload.model_validate(
        {"kind": "pod", "name": "w", "pool": "p0", "image": "registry.example/w:1", **asked}
    )
    assert list(refusals(aws(CLAIMED), work)) == said
