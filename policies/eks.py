"""Rules over the Kubernetes version of an EKS cluster: how long AWS supports it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from infra import facts
from policies import contract
from policies.clock import today
from policies.rule import Resource, Rule, text

WARNING_PERIOD = timedelta(days=90)
"""A new version is available about every four months."""


def _support_end(cluster: Resource) -> tuple[str, date] | None:
    """The kind of support that the cluster has, and the day on which it ends; None if that is not known.

    EKS enables extended support unless a cluster says otherwise.
    """
    version = facts.EKS_VERSIONS.get(text(cluster.props, "version"))
    kind = "extended"
    if text(cluster.props, "upgradePolicy", "supportType") == "STANDARD":
        kind = "standard"
    day = getattr(version, kind, None)
    return (kind, day) if day else None


def _support_ends(cluster: Resource, _: Sequence[Resource]) -> Iterator[str]:
    support = _support_end(cluster)
    if support and support[1] - WARNING_PERIOD <= today() < support[1]:
        yield f"{support[0]} support of Kubernetes {text(cluster.props, 'version')} ends on {support[1]}"


def _support_ended(cluster: Resource, _: Sequence[Resource]) -> Iterator[str]:
    support = _support_end(cluster)
    if support and support[1] <= today():
        yield f"{support[0]} support of Kubernetes {text(cluster.props, 'version')} ended on {support[1]}"


RULES = (
    Rule(
        "eks-support-ends",
        "The cluster's support for its Kubernetes version does not end within 90 days.",
        "low",
        "write a newer cluster.version, or EKS upgrades the cluster by itself",
        (contract.CLUSTER,),
        _support_ends,
    ),
    Rule(
        "eks-supported",
        "The cluster's support for its Kubernetes version has not ended.",
        "high",
        "write a newer cluster.version, or cluster.support: extended if AWS still has the version in it",
        (contract.CLUSTER,),
        _support_ended,
    ),
)
