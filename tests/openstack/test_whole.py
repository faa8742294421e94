"""``gpuform up openstack-dev``: CERN's stack file, a real Magnum API, a real API server, pods on slices."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.openstack.whole import STACK, Whole, whole
from tests.openstack.world import World

pytestmark = [pytest.mark.cluster, pytest.mark.engine]


def test_the_committed_stack_comes_up_and_then_stays(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with whole(world, tmp_path, monkeypatch) as site:
        site.gpuform("up", STACK)
        [cluster] = world.clusters()
        assert cluster.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        groups = {one.name: one.node_count for one in world.magnum().nodegroups.list(cluster.uuid)}
        nodes = _nodes(site)
        of_pool = Counter(node["metadata"]["labels"].get("gpuform.io/pool") for node in nodes)
        # gpu-ci had grown by the time its third runner was up: one node holds two of them.
        assert of_pool == {"gpu-t4": 2, "gpu-a100": 1, "gpu-v100s": 1, "gpu-ci": 2, None: 1}
        assert groups == {"default-master": 1, "default-worker": 1, **{k: v for k, v in of_pool.items() if k}}
        assert _offers(nodes) == {
            "gpu-t4": {"nvidia.com/gpu.shared": "4"},
            "gpu-a100": {"nvidia.com/mig-3g.20gb": "1", "nvidia.com/mig-2g.10gb": "2"},
            "gpu-v100s": {"nvidia.com/gpu": "1"},
            "gpu-ci": {"nvidia.com/gpu": "2"},
        }
        world.forget()
        said = site.gpuform("up", STACK).stdout
        assert "unchanged in" in said
        assert "created" not in said.splitlines()[-1]
        assert "updated" not in said.splitlines()[-1]
        assert world.requests(changes=True) == []


def _nodes(site: Whole) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(site.kubectl("get", "nodes", "-o", "json"))["items"]
    return found


def _offers(nodes: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """What the nodes of each pool offer of NVIDIA's, without zeros."""
    return {
        node["metadata"]["labels"]["gpuform.io/pool"]: {
            key: count
            for key, count in node["status"]["allocatable"].items()
            if key.startswith("nvidia.com/") and count != "0"
        }
        for node in nodes
        if "gpuform.io/pool" in node["metadata"]["labels"]
    }
