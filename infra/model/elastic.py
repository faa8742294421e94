"""Pools that grow and shrink: how far, what they are bought as, and whom they serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from infra.model.base import Count, LabelKey, Model

Capacity = Literal["reserved", "on_demand", "spot"]
PoolClass = Literal["training", "inference", "interactive", "batch"]

CAPACITY_TYPES: Mapping[Capacity, str] = {"reserved": "reserved", "on_demand": "on-demand", "spot": "spot"}
"""Karpenter's words for the ways of buying."""

CPU = "cpu"
MEMORY_GIB = "memory_gib"
NODES = "nodes"


class Elastic(Model):
    """Nodes come with the pods that need them, and go without them."""

    min: Annotated[int, Field(strict=True, ge=0)] | None = Field(
        default=None, description="Nodes that are always there (OpenStack); 1 if left out."
    )
    max: dict[LabelKey, Count] = Field(
        min_length=1,
        description="Most of its nodes together. AWS, for each way of buying on its own (Karpenter has no "
        "limit over several): cpu (cores), memory_gib, or a resource that they offer, for example "
        "nvidia.com/gpu.shared. OpenStack: nodes.",
    )

    @property
    def least(self) -> int:
        """Nodes that are always there; Karpenter keeps none, whatever this says."""
        return 1 if self.min is None else self.min


SURGE = 1
"""Nodes that a pool with a fixed number may have for a while beside them, while one is replaced."""


def node_pool_name(pool: str, kinds: Sequence[Capacity], capacity: Capacity) -> str:
    """Name of Karpenter's NodePool: the pool's, and how it is bought where there are several ways."""
    return pool if len(kinds) == 1 else f"{pool}-{CAPACITY_TYPES[capacity]}"


def static_name(pool: str) -> str:
    """Name of a NodePool with a fixed number of nodes: Karpenter lets none become one, or cease to be one."""
    return f"{pool}-static"
