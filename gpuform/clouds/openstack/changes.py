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
    Effects,
    PreviewRules,
    Rule,
    Weight,
    after,
    before,
    describe_shrink,
    differs,
    loss_effects,
    paths_of,
)
from gpuform.stack.preview.snapshot import Snapshot
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import magnum

_BOUNDS = ("minNodeCount", "maxNodeCount")


def _cluster(step: Step, snapshot: Snapshot) -> Effects:
    """A lost cluster; an updated one: fewer default workers, or another template."""
    if step.op != "update":
        yield from loss_effects(step, "cluster", before(step, "name") or step.name, snapshot, _reason(step))
        return
    if differs(step, "clusterTemplateId"):
        text = "is upgraded to another template: Magnum replaces nodes, one after another"
        yield Effect(Weight.EVICTION, f"cluster {step.name}", text, snapshot.all_nodes, snapshot.pods)
    if text := describe_shrink(step, "Magnum", "nodeCount"):
        nodes = snapshot.nodes.get(magnum.DEFAULT_WORKERS, ())
        yield Effect(
            Weight.EVICTION,
            f"group {magnum.DEFAULT_WORKERS}",
            text,
            nodes,
            snapshot.pods_on(magnum.DEFAULT_WORKERS),
        )


def _node_group(step: Step, snapshot: Snapshot) -> Effects:
    """A node group: deleted, replaced, with fewer nodes, or with other bounds."""
    pool = str(before(step, "name") or step.name)
    nodes, pods = snapshot.nodes.get(pool, ()), snapshot.pods_on(pool)
    if step.op == "delete":
        yield Effect(Weight.EVICTION, f"pool {pool}", "is deleted with all its nodes", nodes, pods)
    elif step.op == "replace":
        if step.change and "clusterId" in (*step.change.replaces, *step.change.paths):
            return  # reported with its cluster
        order = "all its nodes are removed before new ones are created"
        text = f"node group is replaced ({_reason(step)}): {order}"
        yield Effect(Weight.EVICTION, f"pool {pool}", text, nodes, pods)
    elif text := describe_shrink(step, "Magnum", "nodeCount"):
        yield Effect(Weight.EVICTION, f"pool {pool}", text, nodes, pods)
    elif differs(step, *_BOUNDS):
        yield from _bounds(step, pool, snapshot)


def _reason(step: Step) -> str:
    """The paths that differ, or "labels", which only the program compares: it replaces a group for them."""
    return paths_of(step) if step.change and step.change.paths else "labels"


def _bounds(step: Step, pool: str, snapshot: Snapshot) -> Effects:
    """Bounds of a group that cluster-autoscaler scales; a change removes no node at once."""
    (minimum, maximum), (_, old_maximum) = ([side(step, key) for key in _BOUNDS] for side in (after, before))
    if maximum is None:
        yield Effect(Weight.NOTICE, f"pool {pool}", "is no longer elastic: its number of nodes is fixed")
        return
    nodes = snapshot.nodes.get(pool, ())
    text = f"has {int(minimum or 0)} to {int(maximum)} nodes from now on"
    if old_maximum is not None and len(nodes) > maximum:
        text += f"; {len(nodes)} exist, and Magnum refuses a maximum below that"
    yield Effect(Weight.NOTICE, f"pool {pool}", text, nodes)


class OpenstackPreview(PreviewRules):
    """Magnum's resources."""

    cluster = CLUSTER
    effects: ClassVar[Mapping[str, Rule]] = {
        CLUSTER: _cluster,
        NODE_GROUP: _node_group,
    }


_LABELS = "labels"
_NODE_COUNT = "nodeCount"


class OpenstackDrift(DriftRules):
    """Nodes by their node group's label, and fields that Magnum or cluster-autoscaler sets."""

    def selector(self, env: Environment, pool: Pool) -> Mapping[str, str]:
        return magnum.selector(env, pool)

    def is_expected(self, env: Environment, step: Step, path: str) -> bool:
        if step.type not in (CLUSTER, NODE_GROUP):
            return False
        if path.partition(".")[0].partition("[")[0] == _LABELS:
            return True
        name = step.change.before.get("name") if step.change else None
        elastic = {pool.name for pool in env.pools if pool.elastic}
        return step.type == NODE_GROUP and path == _NODE_COUNT and name in elastic
