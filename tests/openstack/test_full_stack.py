"""``gpuform up openstack-dev``: CERN's stack file, a real Magnum API, a real API server, pods on slices."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.openstack.full_stack import STACK, FullStack, full_stack
from tests.openstack.tenant import Tenant
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

TAINT = "node-role.kubernetes.io/gpu"
JOINS_S = 60.0


def test_the_committed_stack_comes_up_and_then_stays(tenant: Tenant, tmp_path: Path) -> None:
    with full_stack(tenant, tmp_path) as site:
        site.gpuform("up", STACK)
        [cluster] = tenant.clusters()
        assert cluster.status in ("CREATE_COMPLETE", "UPDATE_COMPLETE")
        groups = {one.name: one.node_count for one in tenant.magnum().nodegroups.list(cluster.uuid)}
        nodes = _nodes(site)
        of_pool = Counter(node["metadata"]["labels"].get("gpuform.io/pool") for node in nodes)
        # gpu-ci had grown before its third runner was up: one node holds two of them.
        assert of_pool == {"gpu-t4": 2, "gpu-a100": 1, "gpu-v100s": 1, "gpu-ci": 2, None: 1}
        assert groups == {"default-master": 1, "default-worker": 1, **{k: v for k, v in of_pool.items() if k}}
        assert _offers(nodes) == {
            "gpu-t4": {"nvidia.com/gpu.shared": "4"},
            "gpu-a100": {"nvidia.com/mig-3g.20gb": "1", "nvidia.com/mig-2g.10gb": "2"},
            "gpu-v100s": {"nvidia.com/gpu": "1"},
            "gpu-ci": {"nvidia.com/gpu": "2"},
        }
        tenant.forget_requests()
        said = site.gpuform("up", STACK).stdout
        assert "unchanged in" in said
        assert "created" not in said.splitlines()[-1]
        assert "updated" not in said.splitlines()[-1]
        assert tenant.requests(changes=True) == []
        with site.by_its_own_kubeconfig():
            _is_seen(site)
        _changes_by_hand_are_found(tenant, site, cluster.uuid)


def _is_seen(site: FullStack) -> None:
    top = json.loads(site.gpuform("top", STACK, "--json").stdout)
    asked: Counter[str] = Counter()
    for node in top["nodes"]:
        asked[node["pool"]] += node["requested_gpus"]
    assert asked == {"gpu-t4": 0.75, "gpu-a100": 1, "gpu-v100s": 1, "gpu-ci": 1.5}
    assert top["growing"] == [{"pool": "gpu-ci", "nodes": 2, "min": 1, "max": 3}]
    # The stand-in for the monitoring chart has no Prometheus; the API server itself answers 404.
    assert "answers 404" in top["prometheus"]["why"]


def _changes_by_hand_are_found(tenant: Tenant, site: FullStack, cluster: str) -> None:
    """One node more than declared, which gets its pool's configuration; a foreign label and a lost taint."""
    group = tenant.magnum().nodegroups.get(cluster, "gpu-t4")
    tenant.magnum().clusters.resize(cluster, 3, nodegroup=group.uuid)
    v100s = "research-gpu-v100s-0"
    site.kubectl("label", "node", v100s, "gpuform.io/pool=other", "--overwrite")
    site.kubectl("taint", "node", v100s, f"{TAINT}-")
    joined = _joined(site, "research-gpu-t4-2")
    [first] = [node for node in _nodes(site) if node["metadata"]["name"] == "research-gpu-t4-0"]
    assert joined["spec"]["taints"] == first["spec"]["taints"]
    found = json.loads(site.gpuform("drift", STACK, "--json", code=3).stdout)["findings"]
    assert {(one["resource"], one["path"]): tuple(list(one.values())[2:]) for one in found} == {
        ("pool gpu-t4", "nodes"): ("added", "cluster", "2", "3"),
        ("openstack:containerinfra/nodeGroup:NodeGroup groups-gpu-t4", "nodeCount"): (
            "changed",
            "engine",
            "2",
            "3",
        ),
        (f"Node {v100s}", 'metadata.labels["gpuform.io/pool"]'): ("changed", "cluster", "gpu-v100s", "other"),
        (f"Node {v100s}", f"spec.taints[{TAINT}:NoSchedule]"): ("missing", "cluster", "true", "none"),
        ("PoolNodes pools-gpu-v100s", "nodes"): ("missing", "engine", "", ""),
    }


def _joined(site: FullStack, name: str) -> dict[str, Any]:
    """The node once it is in its pool, its operands have run and it is schedulable."""

    def node() -> dict[str, Any]:
        return next((one for one in _nodes(site) if one["metadata"]["name"] == name), {})

    def ready(found: dict[str, Any]) -> bool:
        taints = {taint["key"] for taint in found.get("spec", {}).get("taints", ())}
        return bool(found and "gpuform.io/gpu-not-ready" not in taints and _offers([found]).get("gpu-t4"))

    return until(node, ready, JOINS_S, name)


def _nodes(site: FullStack) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(site.kubectl("get", "nodes", "-o", "json"))["items"]
    return found


def _offers(nodes: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    return {
        node["metadata"]["labels"]["gpuform.io/pool"]: {
            key: count
            for key, count in node["status"]["allocatable"].items()
            if key.startswith("nvidia.com/") and count != "0"
        }
        for node in nodes
        if "gpuform.io/pool" in node["metadata"]["labels"]
    }
