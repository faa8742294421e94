"""Handling of nodes with a broken GPU: which controller acts, how far, and how often at most.

The loop of this project keeps new pods off a node and writes a ticket; it ends, reboots and replaces none.
What replaces nodes is declared, and then the loop only observes: two would act on the same nodes, each by its
own count. On AWS that is EKS's repair of node groups or Karpenter's of its own nodes, which know of GPUs only
what EKS's monitoring agent reports. Magnum's auto-healing replaces nodes that are not Ready.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from infra.model.base.errors import InputError
from infra.model.base.fields import (
    SHARE,
    Model,
    NodeCount,
    Strict,
    matching,
    number_as_text,
    option,
    refusing,
)
from infra.model.base.quantities import seconds
from infra.model.openstack.cluster import OpenstackCluster
from infra.model.platform.monitoring import Monitoring
from infra.model.pool.pool import Pool

AUTO_HEALING = "auto_healing_enabled"
"""Magnum's label that enables replacement of nodes that are not Ready (its user guide, labels)."""


def _no_replacement(value: Any) -> Any:
    if value == "replace":
        remedy = "use ticket; on AWS, observe with repair: eks or karpenter"
        raise InputError("", "gpuform no longer replaces nodes", remedy)
    return value


Mode = Annotated[Literal["observe", "cordon", "ticket"], BeforeValidator(_no_replacement)]
Repair = Literal["eks", "karpenter"]

_SHORTEST_S, _LONGEST_S = 600, 7 * 24 * 3600


Share = Annotated[
    Strict,
    BeforeValidator(number_as_text),
    matching(SHARE, "a share of the nodes", "write 1% to 100%, for example 20%"),
]
Window = Annotated[
    Strict,
    BeforeValidator(number_as_text),
    matching("[1-9][0-9]{0,8}[mh]", "a duration", "write it in minutes or hours, for example 1h"),
    refusing(
        lambda value: not _SHORTEST_S <= seconds(value) <= _LONGEST_S,
        "{} is not a valid window",
        "use 10m or more, and 168h or less",
    ),
]


class Health(Model):
    """Handling of GPU faults that need a reset or another GPU; other faults are only reported."""

    KEY_HINTS: ClassVar[Mapping[str, tuple[str, str]]] = {
        "remediator": ("was replaced", "use repair: eks or karpenter; leave it out for gpuform")
    }

    mode: Mode = option(
        "observe: report what would be done, change no node. cordon: keep new pods off the node, by a taint "
        "and a condition. ticket: as cordon, and write a ticket.",
        "observe",
    )
    repair: Repair | None = option(
        "What replaces nodes with a broken GPU, with mode observe: EKS's repair of node groups (eks), or "
        "Karpenter's of its nodes (karpenter). AWS only; a person if left out."
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
    monitoring: Monitoring | None,
    pools: Sequence[Pool],
    magnum: OpenstackCluster | None,
) -> None:
    """Refuse a loop that can see no fault, and a second controller for the same nodes."""
    if health is None:
        return
    if monitoring is None:
        fact = "nothing is monitored, so no fault would be detected"
        raise InputError("health", fact, "add monitoring: {}, or leave health out")
    if monitoring.prometheus and monitoring.prometheus.sigv4:
        fact = "its loop cannot sign requests for AWS (monitoring.prometheus.sigv4)"
        remedy = "run aws-sigv4-proxy in the cluster, and name its Service in monitoring.prometheus.service"
        raise InputError("health", fact, remedy)
    if not any(pool.gpus for pool in pools):
        raise InputError("health", "no pool has GPUs", "leave it out")
    _check_repair(cluster, health, pools)
    if magnum is not None and health.changes_nodes and magnum.labels.get(AUTO_HEALING) == "true":
        fact = f"Magnum's auto-healing and this loop (mode {health.mode}) would both act on the same nodes"
        raise InputError(f"cluster.labels.{AUTO_HEALING}", fact, "use false, or health.mode: observe")


def _check_repair(cluster: str, health: Health, pools: Sequence[Pool]) -> None:
    path, repair = "health.repair", health.repair
    if repair is None:
        return
    if cluster != "aws":
        fact = f"this cluster has no {'Karpenter' if repair == 'karpenter' else 'EKS'}"
        raise InputError(path, fact, "leave it out, or use cluster kind aws")
    if health.changes_nodes:
        fact = f"{repair} and this loop (mode {health.mode}) would both act on the same nodes"
        raise InputError(path, fact, "leave it out, or use mode: observe")
    # Each of the two repairs only nodes that it made.
    for index, pool in enumerate(pools):
        if pool.gpus and pool.by_karpenter != (repair == "karpenter"):
            kind = "Karpenter's" if pool.by_karpenter else "of a managed node group"
            fact = f"{repair} does not repair the nodes of pools[{index}] ({pool.name}), which are {kind}"
            raise InputError(path, fact, "leave it out")
