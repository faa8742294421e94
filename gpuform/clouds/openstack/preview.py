"""Effects of Magnum changes on nodes and pods: node groups, and the cluster with its default workers.

Sources: the OpenStack provider's resources (a count is patched, another template is an upgrade, any other
change is a replacement) and Magnum's API, in which a resize lets the driver choose the nodes to remove.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gpuform.engine import Step
from gpuform.stack.preview.effect import (
    Effect,
    Found,
    PreviewRules,
    Rule,
    Weight,
    after,
    before,
    changed,
    lost,
    paths_of,
)
from gpuform.stack.preview.world import World
from infra.plan.magnum import DEFAULT_WORKERS

_CLUSTER = "openstack:containerinfra/cluster:Cluster"
_BOUNDS = ("minNodeCount", "maxNodeCount")


def _cluster(step: Step, world: World) -> Found:
    """A lost cluster; an updated one: fewer default workers, or another template."""
    if step.op != "update":
        yield from lost(step, "cluster", before(step, "name") or step.name, world, _reason(step))
        return
    if changed(step, "clusterTemplateId"):
        how = "is upgraded to another template: Magnum replaces nodes, one after another"
        yield Effect(Weight.EVICTION, f"cluster {step.name}", how, world.every, world.pods)
    if fewer := _fewer(step):
        nodes = world.nodes.get(DEFAULT_WORKERS, ())
        yield Effect(Weight.EVICTION, f"group {DEFAULT_WORKERS}", fewer, nodes, world.on(DEFAULT_WORKERS))


def _node_group(step: Step, world: World) -> Found:
    """A node group: deleted, replaced, with fewer nodes, or with other bounds."""
    pool = str(before(step, "name") or step.name)
    nodes, pods = world.nodes.get(pool, ()), world.on(pool)
    if step.op == "delete":
        yield Effect(Weight.EVICTION, f"pool {pool}", "is deleted with all its nodes", nodes, pods)
    elif step.op == "replace":
        if step.change and "clusterId" in (*step.change.replaces, *step.change.paths):
            return  # reported with its cluster
        order = "all its nodes are removed before new ones are created"
        how = f"node group is replaced ({_reason(step)}): {order}"
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, pods)
    elif fewer := _fewer(step):
        yield Effect(Weight.EVICTION, f"pool {pool}", fewer, nodes, pods)
    elif changed(step, *_BOUNDS):
        yield from _bounds(step, pool, world)


def _reason(step: Step) -> str:
    """The paths that differ, or "labels", which only the program compares: it replaces a group for them."""
    return paths_of(step) if step.change and step.change.paths else "labels"


def _fewer(step: Step) -> str:
    had, has = (side(step, "nodeCount") for side in (before, after))
    if not isinstance(had, int | float) or not isinstance(has, int | float) or has >= had:
        return ""
    is_ = "is" if had - has == 1 else "are"
    return f"{int(had - has)} of {int(had)} nodes {is_} removed; Magnum chooses which"


def _bounds(step: Step, pool: str, world: World) -> Found:
    """Bounds of a group that cluster-autoscaler scales; a change removes no node at once."""
    (least, most), (_, had) = ([side(step, key) for key in _BOUNDS] for side in (after, before))
    if most is None:
        yield Effect(Weight.NOTICE, f"pool {pool}", "is no longer elastic: its number of nodes is fixed")
        return
    nodes = world.nodes.get(pool, ())
    how = f"has {int(least or 0)} to {int(most)} nodes from now on"
    if had is not None and len(nodes) > most:
        how += f"; {len(nodes)} exist, and Magnum refuses a maximum below that"
    yield Effect(Weight.NOTICE, f"pool {pool}", how, nodes)


class OpenstackPreview(PreviewRules):
    """Magnum's resources."""

    cluster = _CLUSTER
    effects: ClassVar[Mapping[str, Rule]] = {
        _CLUSTER: _cluster,
        "openstack:containerinfra/nodeGroup:NodeGroup": _node_group,
    }
