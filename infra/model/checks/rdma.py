"""Checks of the pools' RDMA adapters against each other.

NVIDIA's network operator has one NicClusterPolicy for all nodes [Mellanox/network-operator v26.4.1,
controllers/nicclusterpolicy_controller.go, Reconcile].
"""

from __future__ import annotations

from collections.abc import Sequence

from infra.model.base.errors import InputError
from infra.model.pool.pool import Pool
from infra.model.pool.rdma import Rdma


def check(pools: Sequence[Pool]) -> None:
    """Refuse pools that one network operator with one NicClusterPolicy cannot serve together."""
    first: tuple[str, Rdma] | None = None
    resources: dict[str, tuple[str, Rdma]] = {}
    for index, pool in enumerate(pools):
        rdma, path = pool.rdma, f"pools[{index}].rdma"
        if rdma is None:
            continue
        first = first or (pool.name, rdma)
        if rdma.mode != first[1].mode:
            fact = f"pool {first[0]} has mode {first[1].mode}, and a cluster has one network operator"
            raise InputError(f"{path}.mode", fact, f"use mode: {first[1].mode} in both")
        if rdma.mode == "existing":
            continue
        name, other = resources.setdefault(rdma.resource, (pool.name, rdma))
        if (rdma.selectors, rdma.offered) != (other.selectors, other.offered):
            fact = f"pool {name} offers {rdma.resource} of other adapters, or another count"
            raise InputError(
                f"{path}.resource", fact, "give each pool a resource of its own, or the same options"
            )
        for name, other in resources.values():
            if other.resource != rdma.resource and other.selectors == rdma.selectors:
                fact = f"nodes would also offer {other.resource} of pool {name}, which has the same selectors"
                raise InputError(f"{path}.resource", fact, "use one resource, or select other adapters")
