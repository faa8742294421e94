"""Elastic pools: limits, capacity types, and classes with what they let Karpenter end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from infra.model.base.errors import InputError
from infra.model.base.fields import MAX_NODES, Count, LabelKey, Model, option, required

Capacity = Literal["reserved", "on_demand", "spot"]
PoolClass = Literal["training", "inference", "interactive", "batch"]

CAPACITY_TYPES: Mapping[Capacity, str] = {"reserved": "reserved", "on_demand": "on-demand", "spot": "spot"}
"""Karpenter's names of the capacity types."""

CPU = "cpu"
MEMORY_GIB = "memory_gib"
NODES = "nodes"


class Elastic(Model):
    """Nodes are added when pods need them, and removed when no pod does."""

    min: Annotated[int, Field(strict=True, ge=0, le=MAX_NODES)] | None = option(
        "Fewest nodes (OpenStack); 1 if left out."
    )
    max: dict[LabelKey, Count] = required(
        "Limit of all its nodes together. AWS, for each capacity type separately (Karpenter has no limit "
        "over several): cpu (cores), memory_gib, or a resource that they offer, for example "
        "nvidia.com/gpu.shared. OpenStack: nodes.",
        min_length=1,
    )

    @model_validator(mode="after")
    def _check_max_nodes(self) -> Elastic:
        if self.max.get(NODES, 0) > MAX_NODES:
            raise InputError("max.nodes", f"{self.max[NODES]} is too large", f"use {MAX_NODES} or less")
        return self

    @property
    def min_nodes(self) -> int:
        """Minimum number of nodes; Karpenter keeps none, whatever ``min`` says."""
        return 1 if self.min is None else self.min


@dataclass(frozen=True)
class Disruption:
    """When Karpenter may disrupt a node; durations in Karpenter's format.

    ``expire_after`` is forceful: a node of that age is drained whatever runs on it, and
    ``karpenter.sh/do-not-disrupt`` protects a pod only until ``grace`` is over. Without ``grace`` Karpenter
    waits for such a pod without limit.
    """

    policy: str
    after: str
    expire_after: str
    grace: str | None
    budgets: tuple[Mapping[str, Any], ...]

    def block(self) -> dict[str, Any]:
        return {
            "consolidationPolicy": self.policy,
            "consolidateAfter": self.after,
            "budgets": [dict(budget) for budget in self.budgets],
        }


DISRUPTION: Mapping[PoolClass, Disruption] = {
    # A job may run for days: only empty nodes are removed, none for age, none for a new image while in use;
    # the next job's nodes have that image.
    "training": Disruption(
        "WhenEmpty",
        "10m",
        "Never",
        None,
        ({"nodes": "100%", "reasons": ["Empty"]}, {"nodes": "0", "reasons": ["Drifted", "Underutilized"]}),
    ),
    # Replicas behind a Service can move, a tenth of the nodes at a time; two weeks limit the age of a kernel.
    # The grace period covers the slow start of a model server.
    "inference": Disruption("WhenEmptyOrUnderutilized", "5m", "336h", "15m", ({"nodes": "10%"},)),
    # Sessions of people. Cisco's learning labs use two hours and consolidation; a session with do-not-disrupt
    # keeps its node for one more working day.
    "interactive": Disruption("WhenEmptyOrUnderutilized", "5m", "120m", "8h", ({"nodes": "10%"},)),
    # Jobs that restart by themselves: the cheapest consolidation, and a day limits what a job may lose.
    "batch": Disruption("WhenEmptyOrUnderutilized", "1m", "24h", "30m", ({"nodes": "50%"},)),
}

SURGE = 1
"""Extra nodes that a pool with a fixed number may have while a node is replaced."""


def node_pool_name(pool: str, kinds: Sequence[Capacity], capacity: Capacity) -> str:
    """Name of a Karpenter NodePool: the pool's, with the capacity type if the pool has several."""
    return pool if len(kinds) == 1 else f"{pool}-{CAPACITY_TYPES[capacity]}"


def static_node_pool_name(pool: str) -> str:
    """Name of a static NodePool: its own, because Karpenter cannot turn a NodePool static or back."""
    return f"{pool}-static"
