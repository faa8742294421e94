"""Effects of AWS changes on nodes and pods: node groups, Karpenter's pools, and their network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from gpuform.engine import Step
from gpuform.stack.preview.effect import (
    DRAINED,
    Effect,
    Found,
    PreviewRules,
    Rule,
    Weight,
    after,
    before,
    changed,
    fewer,
    losing,
    lost,
    paths_of,
)
from gpuform.stack.preview.world import World
from infra.model import elastic as capacities
from infra.model import labels
from infra.plan.node_groups import MINIMAL

_CLUSTER = "aws:eks/cluster:Cluster"
_VPC = "aws:ec2/vpc:Vpc"
# Paths of a NodePool's spec that Karpenter acts on without touching existing nodes.
_NO_DRIFT = ("spec.limits", "spec.disruption", "spec.weight", "spec.replicas", "metadata")
_STRATEGY = ("updateConfig", "updateStrategy")
_GROUP_ROLLS = ("version", "releaseVersion", "launchTemplate", "amiType", "instanceTypes")


def _subnet(step: Step, world: World) -> Found:
    """A subnet that is replaced only because of its VPC is reported with the VPC."""
    if not (step.change and "vpcId" in step.change.replaces):
        yield from lost(step, "subnet", step.name)


def _key(step: Step, world: World) -> Found:
    """The key of the cluster's secrets; it is acknowledged by the cluster's name."""
    return lost(step, "encryption key", step.name.removesuffix("-secrets"))


def _node_group(step: Step, world: World) -> Found:
    """A managed node group: rolling update, replacement, fewer nodes, or deletion."""
    pool = str(before(step, "labels", labels.POOL) or step.name)
    nodes = world.nodes.get(pool, ())
    if step.op == "delete":
        yield Effect(Weight.EVICTION, f"pool {pool}", "is deleted with all its nodes", nodes, world.on(pool))
    elif step.op == "replace":
        order = "new nodes first, then all old nodes are removed at once"
        if after(step, *_STRATEGY) == MINIMAL:
            order = "all its nodes are removed before new ones are created"
        how = f"node group is replaced ({paths_of(step)}): {order}"
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, world.on(pool))
    elif changed(step, *_GROUP_ROLLS):
        how = f"nodes are replaced: {_order(step)}"
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, world.on(pool))
    elif how := fewer(step, "EKS", "scalingConfig", "desiredSize"):
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, world.on(pool))


def _order(step: Step) -> str:
    """By the strategy that the group has so far: the provider updates the nodes first, then the strategy.

    Source: resourceNodeGroupUpdate in terraform-provider-aws; the number of new nodes is from the EKS user
    guide ("Scale up phase"). A group has one subnet per zone.
    """
    most = int(before(step, "updateConfig", "maxUnavailable") or 1)
    drained = f"{most} at a time, {DRAINED}"
    if before(step, *_STRATEGY) == MINIMAL:
        return f"old ones end before new ones start, {drained}"
    new = max(2 * len(before(step, "subnetIds") or ()), most)
    order = f"up to {new} new nodes start first, then old ones end, {drained}"
    if after(step, *_STRATEGY) != MINIMAL:
        return order
    remedy = f"run `up` without the change of the nodes first, which sets the strategy {MINIMAL}"
    return f"{order}; the reservation needs free places for them: without any, {remedy}"


def _elastic(step: Step, world: World) -> Found:
    """A NodePool: deletion, or a change for which Karpenter replaces its nodes."""
    pool = str(before(step, "metadata", "labels", labels.POOL) or step.name)
    nodes = world.nodes.get(pool, ())
    if step.op in ("delete", "replace"):
        how = "NodePool is deleted with its nodes, which are drained first"
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, world.on(pool))
    elif step.change and any(not path.startswith(_NO_DRIFT) for path in step.change.paths):
        yield _drift(step, world, pool)


def _node_class(step: Step, world: World) -> Found:
    """An EC2NodeClass: any change of its spec causes drift of its nodes."""
    pool = str(before(step, "metadata", "labels", labels.POOL) or step.name)
    if step.op == "update" and changed(step, "spec"):
        yield _drift(step, world, pool)


def _drift(step: Step, world: World, pool: str) -> Effect:
    how = f"nodes drift ({paths_of(step)}): Karpenter replaces them within the pool's disruption budgets"
    if _reserved(step):
        how += "; new nodes start first, in a reservation only if it has free places"
    return Effect(Weight.EVICTION, f"pool {pool}", how, world.nodes.get(pool, ()), world.on(pool))


def _reserved(step: Step) -> bool:
    types = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": [capacities.CAPACITY_TYPES["reserved"]]}
    wanted = after(step, "spec", "template", "spec", "requirements") or ()
    return types in wanted or bool(after(step, "spec", "capacityReservationSelectorTerms"))


class AwsPreview(PreviewRules):
    """EKS's resources, Karpenter's pools, and their network."""

    cluster = _CLUSTER
    effects: ClassVar[Mapping[str, Rule]] = {
        _CLUSTER: losing("cluster", "name", holds_all=True),
        _VPC: losing("VPC", "tags", "Name", holds_all=True),
        "aws:ec2/subnet:Subnet": _subnet,
        "aws:kms/key:Key": _key,
        "aws:eks/nodeGroup:NodeGroup": _node_group,
        "kubernetes:karpenter.sh/v1:NodePool": _elastic,
        "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass": _node_class,
    }

    def combined(self, steps: Sequence[Step]) -> Found:
        """Clusters that a new VPC would strand.

        EKS accepts other subnets for a cluster, but only of its own VPC (API reference, UpdateClusterConfig),
        so the planned update would fail.
        """
        if any(step.type == _VPC and step.op in ("replace", "delete") for step in steps):
            for step in steps:
                if step.type == _CLUSTER and step.op == "update" and changed(step, "vpcConfig.subnetIds"):
                    how = "cannot move to another VPC, and `up` would fail: it has to be replaced, too"
                    yield Effect(Weight.LOSS, f"cluster {before(step, 'name') or step.name}", how)
