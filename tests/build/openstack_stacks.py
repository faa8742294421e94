"""OpenStack environments for tests: CERN's cluster of two commands, and variants for single tests."""

from __future__ import annotations

import copy
from typing import Any

from infra.config import parse
from infra.model.environment import Environment

T4: dict[str, Any] = {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 1}
BURST: dict[str, Any] = {"name": "burst", "machine": "g4.p1.40g", "elastic": {"min": 1, "max": {"nodes": 4}}}


def small(*pools: dict[str, Any], **cluster: Any) -> dict[str, Any]:
    """A Magnum cluster with these pools; other fields have their defaults."""
    return {
        "name": "research",
        "cluster": {
            "kind": "openstack",
            "cloud": "cern",
            "template": "kubernetes-1.30.2-2",
            "version": "1.30",
            **cluster,
        },
        "pools": [copy.deepcopy(pool) for pool in pools or (T4,)],
    }


def capi(*pools: dict[str, Any], work: int = 0, **cluster: Any) -> Environment:
    """With the Cluster API driver, pools ``pool-<index>``, and ``work`` pods for a GPU of the first."""
    named = [{"name": f"pool-{index}", "machine": "g2.5xlarge", **pool} for index, pool in enumerate(pools)]
    workers = {"nodes": 2, "flavor": "m2.medium"}
    runner = {"name": "w", "namespace": "lab", "kind": "deployment", "pool": "pool-0", "image": "x:1"}
    workloads = [{**runner, "replicas": work}] if work else []
    return parse(
        {**small(*named, **{"driver": "capi", "workers": workers, **cluster}), "workloads": workloads}
    )
