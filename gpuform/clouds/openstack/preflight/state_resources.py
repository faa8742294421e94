"""Magnum clusters in a stack's state, read without starting an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.checkout.paths import Paths
from gpuform.engine import backend, checkpoint
from gpuform.engine.pending import operations
from gpuform.engine.places import Places

CLUSTER = "openstack:containerinfra/cluster:Cluster"


@dataclass(frozen=True)
class Place:
    """A cluster's project id and region id according to the state; empty if not known."""

    project: str = ""
    region: str = ""


@dataclass(frozen=True)
class StateClusters:
    """Ids of the clusters in the state, whether a create was interrupted, and where the clusters are.

    ``places`` omits clusters that were deleted for their replacement.
    """

    ids: frozenset[str]
    creating: bool
    places: Mapping[str, Place] = field(default_factory=dict)


def clusters_in_state(paths: Paths, stack: str) -> StateClusters | None:
    """Read the state beside the checkout; None if the state is kept elsewhere. Changes nothing."""
    if backend.declared(paths.root, stack) is not None:
        return None
    file = Places(paths).checkpoint(backend.project(paths.root), stack)
    state = checkpoint.deployment(file)
    resources = state["deployment"].get("resources") or ()
    clusters = [one for one in resources if one["type"] == CLUSTER and one.get("id")]
    places = {str(one["id"]): _place(one) for one in clusters if not one.get("pendingReplacement")}
    ids = frozenset(str(one["id"]) for one in clusters)
    return StateClusters(ids, any(one.type == CLUSTER for one in operations(state)), places)


def in_state(paths: Paths, stack: str) -> bool:
    """Whether the state beside the checkout has a cluster."""
    found = clusters_in_state(paths, stack)
    return found is not None and bool(found.ids)


def _place(resource: Mapping[str, Any]) -> Place:
    outputs = resource.get("outputs") or {}
    return Place(str(outputs.get("projectId") or ""), str(outputs.get("region") or ""))
