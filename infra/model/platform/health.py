"""Handling of nodes with a broken GPU: which controller acts, how far, and how often at most.

Exactly one controller may act on the nodes with GPUs. Two would remove nodes from under each other, and each
would count only its own actions. On AWS three could act: EKS's repair of node groups, Karpenter's repair of
its own nodes, and the loop of this project; the first two know of GPUs only what EKS's monitoring agent
reports. On OpenStack Magnum's auto-healing could act too: it replaces nodes that are not Ready.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from infra.model.base.errors import InputError
from infra.model.base.fields import SHARE, Model, NodeCount, Strict, matching, option, refusing
from infra.model.base.quantities import seconds
from infra.model.openstack.cluster import OpenstackCluster
from infra.model.pool.pool import Pool

AUTO_HEALING = "auto_healing_enabled"
"""Magnum's label that enables replacement of nodes that are not Ready (its user guide, labels)."""
Mode = Literal["observe", "cordon", "ticket", "replace"]
Remediator = Literal["gpuform", "karpenter", "eks"]

_SHORTEST_S, _LONGEST_S = 600, 7 * 24 * 3600


Share = Annotated[Strict, matching(SHARE, "a share of the nodes", "write 1% to 100%, for example 20%")]
Window = Annotated[
    Strict,
    matching("[1-9][0-9]{0,8}[mh]", "a duration", "write it in minutes or hours, for example 1h"),
    refusing(
        lambda value: not _SHORTEST_S <= seconds(value) <= _LONGEST_S,
        "{} is not a valid window",
        "use 10m or more, and 168h or less",
    ),
]


class Health(Model):
    """Handling of GPU faults that need a reset or another GPU; other faults are only reported."""

    mode: Mode = option(
        "observe: report what would be done, change no node. cordon: keep new pods off the node, by a taint "
        "and a condition. ticket: as cordon, and write a ticket. replace: as ticket, but Karpenter replaces "
        "its own nodes with a broken GPU; not on OpenStack.",
        "observe",
    )
    remediator: Remediator | None = option(
        "The only one that acts on GPU nodes: this loop (gpuform), Karpenter's node repair, or EKS's repair "
        "of node groups. Required on AWS; elsewhere gpuform is the only choice."
    )
    budget: Share = option(
        "Largest share of the nodes with GPUs to act on within the window, rounded down, at least one node. "
        "Beyond it, the loop stops acting until a person has checked.",
        "20%",
    )
    max: NodeCount | None = option("Largest number of nodes to act on within the window.")
    window: Window = option("Window in which actions are counted, for example 30m or 2h.", "1h")

    @property
    def changes_nodes(self) -> bool:
        return self.mode != "observe"

    @property
    def budget_ratio(self) -> float:
        """The budget as a fraction, 0 to 1."""
        return int(self.budget.removesuffix("%")) / 100


def check(
    cluster: str,
    health: Health | None,
    has_monitoring: bool,
    pools: Sequence[Pool],
    magnum: OpenstackCluster | None,
) -> None:
    """Refuse a loop that can see no fault, and a second controller for the same nodes."""
    if health is None:
        return
    if not has_monitoring:
        fact = "nothing is monitored, so no fault would be detected"
        raise InputError("health", fact, "add monitoring: {}, or leave health out")
    if not any(pool.gpus for pool in pools):
        raise InputError("health", "no pool has GPUs", "leave it out")
    _check_remediator(cluster, health, pools)
    _check_magnum(health, magnum)


def _check_magnum(health: Health, magnum: OpenstackCluster | None) -> None:
    """Magnum cannot replace a node: in simulations, two resizes of its group removed healthy nodes.

    Its API does not show whether a requested resize is still pending, and an autoscaler may resize the same
    group meanwhile.
    """
    if magnum is not None and health.mode == "replace":
        fact = "Magnum has no call that replaces a node, and resizing a group twice can remove healthy ones"
        raise InputError("health.mode", fact, "use mode: ticket, and replace the node by hand")
    if magnum is not None and health.changes_nodes and magnum.labels.get(AUTO_HEALING) == "true":
        fact = f"Magnum's auto-healing and this loop (mode {health.mode}) would both act on the same nodes"
        raise InputError(f"cluster.labels.{AUTO_HEALING}", fact, "use false, or health.mode: observe")


def _check_remediator(cluster: str, health: Health, pools: Sequence[Pool]) -> None:
    path, remediator = "health.remediator", health.remediator
    if cluster != "aws":
        if remediator in ("karpenter", "eks"):
            fact = f"this cluster has no {'Karpenter' if remediator == 'karpenter' else 'EKS'}"
            raise InputError(path, fact, "leave it out, or use cluster kind aws")
        return
    if remediator is None:
        fact = "missing, and on AWS EKS and Karpenter can also repair nodes"
        raise InputError(path, fact, "name the one that may act: gpuform, karpenter or eks")
    if remediator == "gpuform":
        return
    if health.changes_nodes:
        fact = f"{remediator} and this loop (mode {health.mode}) would both act on the same nodes"
        raise InputError(path, fact, "use remediator: gpuform, or mode: observe")
    # Each of the two repairs only nodes that it made.
    for index, pool in enumerate(pools):
        if pool.gpus and pool.by_karpenter != (remediator == "karpenter"):
            kind = "Karpenter's" if pool.by_karpenter else "of a managed node group"
            fact = f"{remediator} does not repair the nodes of pools[{index}] ({pool.name}), which are {kind}"
            raise InputError(path, fact, "use remediator: gpuform")
