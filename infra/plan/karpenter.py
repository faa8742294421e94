"""Karpenter's NodePools: what a pool may buy, how much of it, and when a node may be taken away.

One NodePool for each way of buying; Karpenter tries the heaviest first, so that a reservation that is paid
for is used up before on-demand is bought, and spot is what is left. Each of them has the pool's whole limit:
Karpenter has no limit over several NodePools, and halves would keep the fallback from filling in.

A pool whose GPUs are claimed has one static NodePool, which keeps its number of nodes: a pod that has nothing
but a claim starts none.

A node with GPUs is born with the startup taint, which the readiness gate lifts: without it, a pod is bound as
soon as the node offers what it asks for, whether or not a single kernel has run there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from infra.model import elastic, labels
from infra.model.elastic import Capacity, PoolClass
from infra.model.environment import Environment
from infra.model.machines import MACHINES
from infra.model.pool import Pool
from infra.plan import mig_parted, sharing, startup

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Disruption:
    """When Karpenter may take a node away; durations as Karpenter writes them.

    ``expire_after`` is forceful: a node of that age is drained whatever runs on it, and
    ``karpenter.sh/do-not-disrupt`` holds a pod only until ``grace`` is over. Without a grace period such a
    pod is waited for, without an end.
    """

    policy: str
    after: str
    expire_after: str
    grace: str | None
    budgets: tuple[Mapping[str, Any], ...]

    def block(self) -> Manifest:
        """The NodePool's ``disruption``."""
        return {
            "consolidationPolicy": self.policy,
            "consolidateAfter": self.after,
            "budgets": [dict(budget) for budget in self.budgets],
        }


DISRUPTION: Mapping[PoolClass, Disruption] = {
    # A job that runs for days is worth more than a tidy cluster: only empty nodes go, none for its age, none
    # for a new image while it works; the next job's nodes have that image.
    "training": Disruption(
        "WhenEmpty",
        "10m",
        "Never",
        None,
        ({"nodes": "100%", "reasons": ["Empty"]}, {"nodes": "0", "reasons": ["Drifted", "Underutilized"]}),
    ),
    # Replicas behind a Service move, a tenth of the nodes at a time; two weeks bound the age of a kernel. The
    # slow start of a model server is inside the grace period.
    "inference": Disruption("WhenEmptyOrUnderutilized", "5m", "336h", "15m", ({"nodes": "10%"},)),
    # Sessions of people. Two hours and packing together are what Cisco's learning labs run with; a session
    # that says do-not-disrupt keeps its node for a working day more.
    "interactive": Disruption("WhenEmptyOrUnderutilized", "5m", "120m", "8h", ({"nodes": "10%"},)),
    # Jobs that start again by themselves: the cheapest packing wins, and a day bounds what one may lose.
    "batch": Disruption("WhenEmptyOrUnderutilized", "1m", "24h", "30m", ({"nodes": "50%"},)),
}

WEIGHTS: Mapping[Capacity, int] = {"reserved": 100, "on_demand": 50, "spot": 10}
"""A heavier NodePool is tried first; Karpenter takes 1 to 100."""

EC2_GPUS: Mapping[str, tuple[str, int]] = {
    "A100-SXM4-40GB": ("a100", 40960),
    "A100-SXM4-80GB": ("a100", 81920),
    "A10G": ("a10g", 22888),
    "B200": ("b200", 183359),
    "H100-SXM": ("h100", 81920),
    "H200": ("h200", 144384),
    "L4": ("l4", 22888),
    "L40S": ("l40s", 45776),
    "RTX-PRO-6000": ("rtx-pro-server-6000", 98304),
    "T4": ("t4", 16384),
    "V100-SXM2-32GB": ("v100", 32768),
}
"""Karpenter's labels instance-gpu-name and instance-gpu-memory (MiB) of the GPUs that EC2 sells.

Both are what EC2 DescribeInstanceTypes says, as the project's table of EC2 GPU types of 2026-07-20 has it.
"""


def node_pools(env: Environment, pool: Pool) -> tuple[Manifest, ...]:
    """One NodePool for each way of buying, in the order declared; none for a managed node group's pool."""
    return tuple(node_pool(env, pool, name, capacity) for name, capacity in pool.node_pools.items())


def node_pool(env: Environment, pool: Pool, name: str, capacity: Capacity) -> Manifest:
    """One NodePool of a pool, for one way of buying."""
    disruption = DISRUPTION[pool.workload_class]
    spec: Manifest = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": pool.name},
        "requirements": requirements(pool, capacity),
        "expireAfter": disruption.expire_after,
    }
    if disruption.grace is not None:
        spec["terminationGracePeriod"] = disruption.grace
    taints = sharing.pool_taints(env, pool)
    if taints:
        spec["taints"] = taints
    startup_taints = startup.startup_taints(env, pool)
    if startup_taints:
        spec["startupTaints"] = startup_taints
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": own_labels(env, pool)},
        "spec": {
            **(_fixed(pool, disruption) if pool.by_claim else _scaled(pool, disruption, capacity)),
            "template": {"metadata": node_metadata(env, pool), "spec": spec},
        },
    }


def _scaled(pool: Pool, disruption: Disruption, capacity: Capacity) -> Manifest:
    return {"weight": WEIGHTS[capacity], "limits": limits(pool), "disruption": disruption.block()}


def _fixed(pool: Pool, disruption: Disruption) -> Manifest:
    """A static NodePool: no weight and no limit but that of nodes, and nothing to consolidate.

    Without room for one node more, Karpenter would keep a drifted node rather than take it away first.
    """
    assert pool.nodes is not None
    return {
        "replicas": pool.nodes,
        "limits": {"nodes": str(pool.nodes + elastic.SURGE)},
        "disruption": {**disruption.block(), "consolidateAfter": "Never"},
    }


def own_labels(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels of Karpenter's objects themselves."""
    return {labels.ENVIRONMENT: env.name, labels.MANAGED_BY: "gpuform", labels.POOL: pool.name}


def node_metadata(env: Environment, pool: Pool) -> Manifest:
    """Labels, and where the node waits for the readiness gate, what it has to offer.

    With a MIG layout of a chosen name goes what the name stands for: when it comes to mean another one, that
    alone tells Karpenter that its nodes have drifted.
    """
    notes = startup.promise(env, pool)
    content = mig_parted.content(pool) if env.has_mig_manager else None
    if content is not None:
        notes = {**notes, labels.MIG_LAYOUT: content}
    return {"labels": node_labels(env, pool), **({"annotations": notes} if notes else {})}


def node_labels(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels that a node is born with.

    A MIG layout is one of them: a fresh node runs nothing that the MIG manager would have to wait for. An
    image with a device plugin of its own cuts its GPUs by its user data and looks at no label, and without
    the operator nobody does.
    """
    found = sharing.pool_labels(env, pool)
    mig = sharing.mig_config_name(pool)
    if mig is not None and env.has_mig_manager:
        found[labels.MIG_CONFIG] = mig
    return dict(sorted(found.items()))


def limits(pool: Pool) -> dict[str, str]:
    """The NodePool's limits, by the names that its nodes offer once the operands have acted."""
    assert pool.elastic is not None
    found = {}
    for key, most in pool.elastic.max.items():
        if key == elastic.MEMORY_GIB:
            found["memory"] = f"{most}Gi"
        else:
            found[key] = str(most)
    return dict(sorted(found.items()))


def requirements(pool: Pool, capacity: Capacity) -> list[Manifest]:
    """What the instance must be: architecture, way of buying, zones, and the type or its GPUs."""
    found = [
        _among(labels.ARCH, [pool.image.arch]),
        _among(labels.OS, ["linux"]),
        _among(labels.CAPACITY_TYPE, [elastic.CAPACITY_TYPES[capacity]]),
    ]
    if pool.zones:
        found.append(_among(labels.ZONE, sorted(pool.zones)))
    return [*found, *machine_requirements(pool)]


def machine_requirements(pool: Pool) -> list[Manifest]:
    """The instance type, or the GPUs' model, memory and number.

    Name and memory are two lists, so two models can let a third one in (A100 40GB with H100 means A100 80GB
    too): the types of our table that were not meant are then named as not wanted.
    """
    if pool.gpu is None:
        return [_among(labels.INSTANCE_TYPE, [pool.machine or ""])]
    sold = [EC2_GPUS[model] for model in pool.gpu.models if model in EC2_GPUS]
    names, sizes = {name for name, _ in sold}, {size for _, size in sold}
    found = [
        _among(labels.INSTANCE_GPU_NAME, sorted(names)),
        _among(labels.INSTANCE_GPU_COUNT, [str(count) for count in pool.gpu_counts]),
        _among(labels.INSTANCE_GPU_MEMORY, [str(size) for size in sorted(sizes)]),
    ]
    let_in = [model for model, (name, size) in EC2_GPUS.items() if name in names and size in sizes]
    stray = [
        machine.name
        for machine in MACHINES.values()
        if machine.seller == "ec2" and machine.gpus in pool.gpu_counts
        if machine.gpu in let_in and machine.gpu not in pool.gpu.models
    ]
    if stray:
        found.append({"key": labels.INSTANCE_TYPE, "operator": "NotIn", "values": sorted(stray)})
    return found


def _among(key: str, values: list[str]) -> Manifest:
    return {"key": key, "operator": "In", "values": values}
