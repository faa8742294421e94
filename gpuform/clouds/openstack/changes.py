"""What changes of Magnum's clusters and node groups mean: to nodes and pods, as drift, and what is refused.

Sources: the OpenStack provider's resources (a count is patched, after the bounds, another template is an
upgrade, any other change is a replacement) and Magnum's API, in which a resize lets the driver choose the
nodes to remove, stays within the bounds (cluster_actions.py), and bounds without the number of nodes that
Magnum counts get a 409 (nodegroup.py, ``_validate_node_count``; vexxhost/magnum-cluster-api#521).

Changes that no person made are not drift: cluster-autoscaler sets the number of nodes of an elastic group,
and Magnum and its template write back undeclared labels, which the program ignores for the same reason
(``components.magnum``). How many nodes a group has, and whether they are within its bounds, is read from the
cluster itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.openstack.cloud import connect
from gpuform.clouds.openstack.lookups import CLUSTER, NODE_GROUP
from gpuform.clouds.openstack.preflight.account import openstack_cli
from gpuform.clouds.openstack.preflight.project import Project, StateClusters
from gpuform.engine import Step
from gpuform.engine.checkpoint import guard_records
from gpuform.stack.drift.rules import DriftRules
from gpuform.stack.preflight import Resources, last_version, recorded, refuse_version
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
from infra.model.pool.pool import Pool
from infra.plan import losses, magnum

_BOUNDS = ("minNodeCount", "maxNodeCount")


def _cluster(step: Step, snapshot: Snapshot) -> Effects:
    """A lost cluster; an updated one: fewer default workers, or another template."""
    if step.op != "update":
        yield from loss_effects(step, "cluster", before(step, "name") or step.name, snapshot, _reason(step))
        return
    if differs(step, "clusterTemplateId"):
        text = "is upgraded to another template: Magnum replaces nodes, one after another"
        text += "; a newer Kubernetes cannot be undone"
        yield Effect(Weight.EVICTION, f"cluster {step.name}", text, snapshot.all_nodes, snapshot.pods)
    if text := describe_shrink(step, "Magnum", "nodeCount"):
        group = magnum.DEFAULT_WORKERS
        nodes, pods = snapshot.nodes.get(group, ()), snapshot.pods_on(group)
        yield Effect(Weight.EVICTION, f"group {group}", text, nodes, pods)


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
    minimum, maximum = (after(step, key) for key in _BOUNDS)
    text = "is no longer elastic: its number of nodes is fixed"
    if maximum is not None:
        text = f"has {int(minimum or 0)} to {int(maximum)} nodes from now on"
    yield Effect(Weight.NOTICE, f"pool {pool}", text, snapshot.nodes.get(pool, ()))


class OpenstackPreview(PreviewRules):
    """Magnum's resources."""

    cluster = CLUSTER
    effects: ClassVar[Mapping[str, Rule]] = {CLUSTER: _cluster, NODE_GROUP: _node_group}


def refusals(env: Environment, resources: Resources, live: bool) -> Iterator[InputError]:
    """By Magnum's numbers, else the state's; a group that is replaced has no refusal.

    Versions: ``validateVersion`` of Cluster API's KubeadmControlPlane, only after the upgrade has begun.
    """
    cluster, planned, version = magnum.cluster_of(env), losses.pools(env), last_version(resources)
    groups: dict[str, Mapping[str, Any]] = {one["name"]: one for one in recorded(resources, NODE_GROUP)}
    ids = frozenset(one["id"] for one in recorded(resources, CLUSTER))
    state = StateClusters(ids, creating=False) if ids else None
    with suppress(Failure, InputError):  # another check says why Magnum does not answer
        project = Project(partial(connect, cluster.cloud, cluster.region), env.name, state)
        if live and (existing := project.existing) and existing.is_in_state is not False:
            path = f"/clusters/{existing.id}"
            version = str(project.get("magnum", path).get("coe_version") or version)
            for one in existing.node_groups:
                groups[one["name"]] = project.get("magnum", f"{path}/nodegroups/{one['uuid']}")
    if magnum.upgrades(env):
        step = 'name a template of {next} and write "{next}", run `gpuform up`, and go on from there'
        yield from refuse_version(version, cluster.version, step, f"keep a template of {version}")
    kept = guard_records({"deployment": {"resources": resources}}).get("pools", planned)
    for pool in env.pools:
        if pool.name in groups and kept.get(pool.name) == planned[pool.name]:
            yield from _refuse_bounds(env, pool, groups[pool.name])


def _sizes(group: Mapping[str, Any]) -> tuple[int, ...]:
    """Number, minimum and maximum, by Magnum's names or the provider's; a maximum of 0 is none."""
    names = ("node_count", "min_node_count", "max_node_count"), ("nodeCount", *_BOUNDS)
    return tuple(int(group.get(one) or group.get(other) or 0) for one, other in zip(*names, strict=True))


def _refuse_bounds(env: Environment, pool: Pool, group: Mapping[str, Any]) -> Iterator[InputError]:
    """The remedy has Magnum's order, up: maximum, number, minimum; down: minimum, number, maximum."""
    (nodes, low, high), (_, least, most) = _sizes(group), _sizes(magnum.node_group(env, pool))
    if (low, high) != (least, most) and (nodes < least or 0 < most < nodes):
        number = least if nodes < least else most
        bound = f"min_node_count={least}" if number < low else f"max_node_count={most or number}"
        cli, widens = f"{openstack_cli(magnum.cluster_of(env))} coe", number < low or 0 < high < number
        steps = [f"'{cli} nodegroup update {env.name} {pool.name} replace {bound}'"] if widens else []
        steps.append(f"'{cli} cluster resize {env.name} {number} --nodegroup {pool.name}'")
        path = f"pools[{env.pools.index(pool)}].{'elastic' if pool.elastic else 'nodes'}"
        fact = f"Magnum counts {nodes} nodes, and refuses bounds that leave them out: "
        fact += f"{least} to {most}" if most else f"at least {least}"
        run = ", wait for Magnum, ".join([*steps, "then run `gpuform up`"])
        yield InputError(path, fact, f"run {run}")


class OpenstackDrift(DriftRules):
    """Nodes by their node group's label, and fields that Magnum or cluster-autoscaler sets."""

    def selector(self, env: Environment, pool: Pool) -> Mapping[str, str]:
        return magnum.selector(env, pool)

    def is_expected(self, env: Environment, step: Step, path: str) -> bool:
        if step.type not in (CLUSTER, NODE_GROUP):
            return False
        if path.partition(".")[0].partition("[")[0] == "labels":
            return True
        name = step.change.before.get("name") if step.change else None
        elastic = {pool.name for pool in env.pools if pool.elastic}
        return step.type == NODE_GROUP and path == "nodeCount" and name in elastic
