"""Effects of AWS changes on nodes and pods: node groups, Karpenter's pools, and their network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from gpuform.engine import Step
from gpuform.stack.preview.effect import (
    DRAINED,
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
    loss_rule,
    paths_of,
)
from gpuform.stack.preview.snapshot import Snapshot
from infra.model.base import labels
from infra.model.pool import elastic
from infra.plan.node_groups import MINIMAL

_CLUSTER = "aws:eks/cluster:Cluster"
_VPC = "aws:ec2/vpc:Vpc"
# Paths of a NodePool's spec that Karpenter acts on without touching existing nodes.
_PATHS_WITHOUT_DRIFT = ("spec.limits", "spec.disruption", "spec.weight", "spec.replicas", "metadata")
_STRATEGY = ("updateConfig", "updateStrategy")
_ROLLING_FIELDS = ("version", "releaseVersion", "launchTemplate", "amiType", "instanceTypes")


def _subnet(step: Step, snapshot: Snapshot) -> Effects:
    """A subnet that is replaced only because of its VPC is reported with the VPC."""
    if not (step.change and "vpcId" in step.change.replaces):
        yield from loss_effects(step, "subnet", step.name)


def _key(step: Step, snapshot: Snapshot) -> Effects:
    """The key of the cluster's secrets; it is acknowledged by the cluster's name."""
    return loss_effects(step, "encryption key", step.name.removesuffix("-secrets"))


def _node_group(step: Step, snapshot: Snapshot) -> Effects:
    """A managed node group: rolling update, replacement, fewer nodes, or deletion."""
    pool = str(before(step, "labels", labels.POOL) or step.name)
    nodes = snapshot.nodes.get(pool, ())
    if step.op == "delete":
        yield Effect(
            Weight.EVICTION, f"pool {pool}", "is deleted with all its nodes", nodes, snapshot.pods_on(pool)
        )
    elif step.op == "replace":
        order = "new nodes first, then all old nodes are removed at once"
        if after(step, *_STRATEGY) == MINIMAL:
            order = "all its nodes are removed before new ones are created"
        text = f"node group is replaced ({paths_of(step)}): {order}"
        yield Effect(Weight.EVICTION, f"pool {pool}", text, nodes, snapshot.pods_on(pool))
    elif differs(step, *_ROLLING_FIELDS):
        text = f"nodes are replaced: {_update_order(step)}"
        yield Effect(Weight.EVICTION, f"pool {pool}", text, nodes, snapshot.pods_on(pool))
    elif text := describe_shrink(step, "EKS", "scalingConfig", "desiredSize"):
        yield Effect(Weight.EVICTION, f"pool {pool}", text, nodes, snapshot.pods_on(pool))


def _update_order(step: Step) -> str:
    """By the strategy that the group has so far: the provider updates the nodes first, then the strategy.

    Source: resourceNodeGroupUpdate in terraform-provider-aws; the number of new nodes is from the EKS user
    guide ("Scale up phase"). A group has one subnet per zone.
    """
    max_unavailable = int(before(step, "updateConfig", "maxUnavailable") or 1)
    drained = f"{max_unavailable} at a time, {DRAINED}"
    if before(step, *_STRATEGY) == MINIMAL:
        return f"old ones end before new ones start, {drained}"
    max_new = max(2 * len(before(step, "subnetIds") or ()), max_unavailable)
    order = f"up to {max_new} new nodes start first, then old ones end, {drained}"
    if after(step, *_STRATEGY) != MINIMAL:
        return order
    remedy = f"run `up` without the change of the nodes first, which sets the strategy {MINIMAL}"
    return f"{order}; the reservation needs free places for them: without any, {remedy}"


def _node_pool(step: Step, snapshot: Snapshot) -> Effects:
    """A NodePool: deletion, or a change for which Karpenter replaces its nodes."""
    pool = str(before(step, "metadata", "labels", labels.POOL) or step.name)
    nodes = snapshot.nodes.get(pool, ())
    if step.op in ("delete", "replace"):
        text = "NodePool is deleted with its nodes, which are drained first"
        yield Effect(Weight.EVICTION, f"pool {pool}", text, nodes, snapshot.pods_on(pool))
    elif step.change and any(not path.startswith(_PATHS_WITHOUT_DRIFT) for path in step.change.paths):
        yield _drift(step, snapshot, pool)


def _node_class(step: Step, snapshot: Snapshot) -> Effects:
    """An EC2NodeClass: any change of its spec causes drift of its nodes."""
    pool = str(before(step, "metadata", "labels", labels.POOL) or step.name)
    if step.op == "update" and differs(step, "spec"):
        yield _drift(step, snapshot, pool)


def _drift(step: Step, snapshot: Snapshot, pool: str) -> Effect:
    text = f"nodes drift ({paths_of(step)}): Karpenter replaces them within the pool's disruption budgets"
    if _uses_reservation(step):
        text += "; new nodes start first, in a reservation only if it has free places"
    return Effect(Weight.EVICTION, f"pool {pool}", text, snapshot.nodes.get(pool, ()), snapshot.pods_on(pool))


def _uses_reservation(step: Step) -> bool:
    term = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": [elastic.CAPACITY_TYPES["reserved"]]}
    requirements = after(step, "spec", "template", "spec", "requirements") or ()
    return term in requirements or bool(after(step, "spec", "capacityReservationSelectorTerms"))


class AwsPreview(PreviewRules):
    """EKS's resources, Karpenter's pools, and their network."""

    cluster = _CLUSTER
    effects: ClassVar[Mapping[str, Rule]] = {
        _CLUSTER: loss_rule("cluster", "name", holds_all=True),
        _VPC: loss_rule("VPC", "tags", "Name", holds_all=True),
        "aws:ec2/subnet:Subnet": _subnet,
        "aws:kms/key:Key": _key,
        "aws:eks/nodeGroup:NodeGroup": _node_group,
        "kubernetes:karpenter.sh/v1:NodePool": _node_pool,
        "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass": _node_class,
    }

    def combined(self, steps: Sequence[Step]) -> Effects:
        """Upgrades of the control plane, and clusters that a new VPC would strand.

        EKS accepts other subnets for a cluster, but only of its own VPC (API reference, UpdateClusterConfig),
        so the planned update would fail.
        """
        is_moved = any(step.type == _VPC and step.op in ("replace", "delete") for step in steps)
        for step in (step for step in steps if step.type == _CLUSTER and step.op == "update"):
            name = f"cluster {before(step, 'name') or step.name}"
            if differs(step, "version"):
                text = f"Kubernetes {before(step, 'version')} to {after(step, 'version')}: not undone by `up`"
                yield Effect(Weight.NOTICE, name, text)
            if is_moved and differs(step, "vpcConfig.subnetIds"):
                text = "cannot move to another VPC, and `up` would fail: it has to be replaced, too"
                yield Effect(Weight.LOSS, name, text)
