"""AWS environments for the plan's tests: a valid one around any pools, and a table of all kinds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infra.config import parse
from infra.model.environment import Environment

IMAGES = {
    "al2023": "al2023@v20260801",
    "al2023-nvidia": "al2023@v20260801",
    "bottlerocket": "bottlerocket@1.50.0",
    "bottlerocket-nvidia": "ami-0123456789abcdef0",
}
MODELS = ("T4", "L4", "A10G", "L40S", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM", "H200", "B200")


def aws(
    *pools: dict[str, Any],
    mig_strategy: str = "mixed",
    workloads: Sequence[dict[str, Any]] = (),
    **cluster: Any,
) -> Environment:
    """Environment with these pools; a pool without a name or size gets ``p<index>`` and is elastic."""
    named = [{"name": f"p{index}", **pool} for index, pool in enumerate(pools)]
    for pool in named:
        if "nodes" not in pool:
            pool.setdefault("elastic", {"max": {"cpu": 1000}})
    used = {"al2023"} | {pool.get("aws", {}).get("image") or _usual(pool) for pool in named}
    return parse(
        {
            "name": "labs",
            "cluster": {
                "kind": "aws",
                "region": "us-west-2",
                "version": "1.34",
                "network": {"cidr": "10.20.0.0/16", "zones": ["us-west-2a", "us-west-2b"]},
                "images": {key: IMAGES[key] for key in sorted(used)},
                **cluster,
            },
            "gpu_operator": {"mig_strategy": mig_strategy},
            "pools": named,
            "workloads": workloads,
        }
    )


def _usual(pool: dict[str, Any]) -> str:
    return "al2023" if pool.get("machine", "").startswith("m") else "al2023-nvidia"


SLICED = {"machine": "g4dn.xlarge", "sharing": {"kind": "time_slicing", "replicas": 3}}
SPOT = {"capacity": ["on_demand", "spot"], "class": "batch", "taints": [{"key": "team", "value": "a"}]}
RESERVED = {"capacity": ["reserved", "on_demand"], "zones": ["us-west-2b"], "class": "training"}
SEVERAL = {"gpu": {"models": ["L4", "A10G"], "count": 4}, "capacity": ["reserved", "on_demand", "spot"]}
COUNTS = {"gpu": {"models": ["T4"], "count": [1, 4]}, "sharing": {"kind": "time_slicing", "replicas": 3}}
MIG = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
MPS = {"machine": "g6e.xlarge", "sharing": {"kind": "mps", "replicas": 4}}
WHOLE_MIG = {"kind": "mig", "layout": "all-1g.5gb"}
CARDS = {"efa": True, "reservations": ["cr-0123456789abcdef0"]}
BOOT = {"max_pods": 110, "pod_pids_limit": 32768}
DISKS = {"instance_store": "raid0"}
CLAIMED = {"machine": "g6.12xlarge", "nodes": 2, "sharing": {"kind": "dra"}}
CLAIMED_SLICES = {"machine": "p4d.24xlarge", "nodes": 1,
                  "sharing": {"kind": "dra", "layout": {"3g.20gb": 1, "2g.10gb": 2}}}  # fmt: skip
BOTTLE = {"image": "bottlerocket-nvidia", **BOOT}

TABLE: dict[str, Environment] = {
    "sliced": aws({**SLICED, "elastic": {"max": {"nvidia.com/gpu.shared": 24, "memory_gib": 640}}}),
    "not renamed": aws({"machine": "g4dn.xlarge", "class": "interactive",
                        "sharing": {"kind": "time_slicing", "replicas": 3, "rename": False}}),
    "by model": aws({**SEVERAL, "aws": {"reservations": ["cr-0a1b2c3d", "cr-00000000"]}}),
    "several counts": aws({**COUNTS, **SPOT}),
    "several counts, whole": aws({"gpu": {"models": ["A10G", "L4"], "count": [1, 4, 8]}}),
    "several counts, mig": aws({"gpu": {"models": ["H100-SXM"], "count": [1, 8]},
                                "sharing": {"kind": "mig", "layout": "all-1g.10gb"}}),
    "a stray model": aws({"gpu": {"models": ["A100-SXM4-40GB", "H100-SXM"], "count": 8}}),
    "mig": aws({"machine": "p4d.24xlarge", "sharing": MIG, **RESERVED, "aws": CARDS}),
    "mig, one resource": aws({"machine": "p5.48xlarge", "sharing": {"kind": "mig", "layout": "all-1g.10gb"}},
                             mig_strategy="single"),
    "mps": aws(MPS, mig_strategy="none"),
    "whole and none": aws({"machine": "g6.12xlarge", "class": "interactive"},
                          {"machine": "m6i.4xlarge", **SPOT}),
    "at boot": aws({**SLICED, "aws": {**BOOT, "prepull": ["docker.io/library/busybox:1.37"]}},
                   tags={"cost-centre": "4711"}),
    "bottlerocket": aws({**SLICED, "aws": BOTTLE}, {"machine": "m6i.xlarge", "nodes": 1}),
    "bottlerocket mps": aws({**MPS, "aws": BOTTLE}, mig_strategy="none"),
    "bottlerocket mig": aws({"machine": "p4d.24xlarge", "sharing": WHOLE_MIG, "aws": BOTTLE},
                            mig_strategy="single"),
    "claimed": aws(CLAIMED, SLICED),
    "claimed slices": aws(CLAIMED_SLICES, CLAIMED),
    "managed": aws({**SLICED, "nodes": 2}),
    "own disks": aws({**SLICED, "aws": DISKS}, {"machine": "p5.48xlarge", "nodes": 1, "aws": DISKS}),
    "bottlerocket, own disks": aws({**SLICED, "aws": {**BOTTLE, **DISKS}},
                                   {"machine": "g6.xlarge", "nodes": 1, "aws": {**BOTTLE, **DISKS}}),
}  # fmt: skip
