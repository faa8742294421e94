"""What changes of Magnum's clusters and node groups mean: to nodes and pods, and as drift.

Sources: the OpenStack provider's resources (a count is patched, another template is an upgrade, any other
change is a replacement) and Magnum's API, in which a resize lets the driver choose the nodes to remove.

Changes that no person made are not drift: cluster-autoscaler sets the number of nodes of an elastic group,
and Magnum and its template write back undeclared labels, which the program ignores for the same reason
(``components.magnum``). How many nodes a group has, and whether they are within its bounds, is read from the
cluster itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from gpuform.clouds.openstack.lookups import CLUSTER, NODE_GROUP
from gpuform.engine import Step
from gpuform.stack.drift.rules import DriftRules
from gpuform.stack.preview.effect import (
    Effect,
    Found,
    PreviewRules,
    Rule,
    Weight,
    after,
    before,
    changed,
    fewer,
    lost,
    paths_of,
)
from gpuform.stack.preview.world import World
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import magnum

_BOUNDS = ("minNodeCount", "maxNodeCount")


def _cluster(step: Step, world: World) -> Found:
    """A lost cluster; an updated one: fewer default workers, or another template."""
    if step.op != "update":
        yield from lost(step, "cluster", before(step, "name") or step.name, world, _reason(step))
        return
    if changed(step, "clusterTemplateId"):
        how = "is upgraded to another template: Magnum replaces nodes, one after another"
        yield Effect(Weight.EVICTION, f"cluster {step.name}", how, world.every, world.pods)
    if how := fewer(step, "Magnum", "nodeCount"):
        nodes = world.nodes.get(magnum.DEFAULT_WORKERS, ())
        yield Effect(
            Weight.EVICTION, f"group {magnum.DEFAULT_WORKERS}", how, nodes, world.on(magnum.DEFAULT_WORKERS)
        )


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
    elif how := fewer(step, "Magnum", "nodeCount"):
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, pods)
    elif changed(step, *_BOUNDS):
        yield from _bounds(step, pool, world)


def _reason(step: Step) -> str:
    """The paths that differ, or "labels", which only the program compares: it replaces a group for them."""
    return paths_of(step) if step.change and step.change.paths else "labels"


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

    cluster = CLUSTER
    effects: ClassVar[Mapping[str, Rule]] = {
        CLUSTER: _cluster,
        NODE_GROUP: _node_group,
    }


_WRITTEN_BACK = "labels"
_COUNT = "nodeCount"


class OpenstackDrift(DriftRules):
    """Nodes by their node group's label, and fields that Magnum or cluster-autoscaler sets."""

    def selector(self, env: Environment, pool: Pool) -> Mapping[str, str]:
        return magnum.selector(env, pool)

    def expected(self, env: Environment, step: Step, path: str) -> bool:
        if step.type not in (CLUSTER, NODE_GROUP):
            return False
        if path.partition(".")[0].partition("[")[0] == _WRITTEN_BACK:
            return True
        name = step.change.before.get("name") if step.change else None
        growing = {pool.name for pool in env.pools if pool.elastic}
        return step.type == NODE_GROUP and path == _COUNT and name in growing
