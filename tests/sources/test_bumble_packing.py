"""Bumble's bin packing: ten nodes of four GPUs, and a pod that needs four of one node (FACTS 1, row 15)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import parse
from infra.plan import quotas, scheduler, workloads
from tests import packing
from tests.conftest import Plane

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

NODES, GPUS = 10, 4
SMALL = {"name": "small", "kind": "deployment", "replicas": 10}
LARGE = {"name": "large", "kind": "deployment", "replicas": 1, "count": 4}


def objects(namespace: str, packer: bool, *work: dict[str, Any]) -> list[dict[str, Any]]:
    env = parse(
        {
            "name": "bumble",
            "cluster": {"kind": "embedded"},
            "pools": [{"name": "ds", "machine": "g4.p4.40g", "nodes": NODES}],
            "scheduling": {"packer": packer},
            "workloads": [
                {"namespace": namespace, "pool": "ds", "image": "tritonserver:1", **one} for one in work
            ],
        }
    )
    spaces = [one for one in quotas.namespaces(env) if one["metadata"]["name"] != "gpu-operator"]
    return [*spaces, *scheduler.manifests(env), *workloads.manifests(env)]


@pytest.fixture(scope="module")
def bumble(control_plane: Plane) -> Iterator[Plane]:
    packing.keeper(control_plane)
    with packing.nodes(control_plane, "ds", NODES, {"nvidia.com/gpu": str(GPUS)}):
        yield control_plane


def test_bumble_without_packing_no_node_keeps_four_gpus(bumble: Plane) -> None:
    made = objects("spread", False, SMALL, LARGE)
    packing.apply(bumble, made[:-1])
    try:
        taken = packing.placed(bumble, "spread", 10)
        # The default profile prefers the node with the most free CPU and memory: each gets one pod.
        assert set(taken.values()) == {1}
        assert len(taken) == NODES
        packing.apply(bumble, made[-1:])
        condition = "--for=jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable"
        selector = "app.kubernetes.io/name=large"
        bumble.kubectl("wait", "pod", "-n", "spread", "-l", selector, condition, "--timeout=30s")
        (large,) = [
            pod for pod in packing.pods(bumble, "spread") if pod["metadata"]["name"].startswith("large")
        ]
        said = large["status"]["conditions"][0]["message"]
        assert f"{NODES} Insufficient nvidia.com/gpu" in said
    finally:
        packing.delete(bumble, made)


def test_bumble_with_packing_whole_nodes_stay_free(bumble: Plane) -> None:
    made = objects("packed", True, SMALL, LARGE)
    packing.apply(bumble, made[:-1])
    try:
        taken = packing.placed(bumble, "packed", 10)
        assert sorted(taken.values()) == [2, 4, 4], "nodes are filled up one after another"
        packing.apply(bumble, made[-1:])
        after = packing.placed(bumble, "packed", 11)
        assert len(after) == 4, "the pod of four GPUs has a node of its own"
        rows = {member.name: member for member in bumble.plane.status().members}
        assert rows["gpuform-packer"].running
    finally:
        packing.delete(bumble, made)
