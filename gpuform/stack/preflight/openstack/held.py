"""Magnum clusters in a stack's state, read without starting an engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuform.checkout.paths import Paths
from gpuform.engine import backend, checkpoint
from gpuform.engine.pending import operations
from gpuform.engine.places import Places
from gpuform.stack.preflight.openstack.project import Held, Place

CLUSTER = "openstack:containerinfra/cluster:Cluster"


def held(paths: Paths, stack: str) -> Held | None:
    """Read the state beside the checkout; None if the state is kept elsewhere. Changes nothing."""
    if backend.declared(paths.root, stack) is not None:
        return None
    file = Places(paths).checkpoint(backend.project(paths.root), stack)
    state = checkpoint.deployment(file)
    resources = state["deployment"].get("resources") or ()
    made = [one for one in resources if one["type"] == CLUSTER and one.get("id")]
    places = {str(one["id"]): _place(one) for one in made if not one.get("pendingReplacement")}
    ids = frozenset(str(one["id"]) for one in made)
    return Held(ids, any(one.type == CLUSTER for one in operations(state)), places)


def _place(resource: Mapping[str, Any]) -> Place:
    outputs = resource.get("outputs") or {}
    return Place(str(outputs.get("projectId") or ""), str(outputs.get("region") or ""))
