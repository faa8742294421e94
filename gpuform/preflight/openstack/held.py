"""What a stack's state has of Magnum, where that can be read without starting an engine."""

from __future__ import annotations

from gpuform.engine import backend, checkpoint
from gpuform.engine.pending import operations
from gpuform.engine.places import Places
from gpuform.paths import Paths
from gpuform.preflight.openstack.project import Held

CLUSTER = "openstack:containerinfra/cluster:Cluster"


def held(paths: Paths, stack: str) -> Held | None:
    """Read the state beside the checkout; None for one that is kept elsewhere. Changes nothing."""
    if backend.declared(paths.root, stack) is not None:
        return None
    file = Places(paths).checkpoint(backend.project(paths.root), stack)
    state = checkpoint.deployment(file)
    resources = state["deployment"].get("resources") or ()
    ids = frozenset(str(one["id"]) for one in resources if one["type"] == CLUSTER and one.get("id"))
    return Held(ids, any(one.type == CLUSTER for one in operations(state)))
