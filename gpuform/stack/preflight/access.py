"""Whether the caller will have access to the cluster, new or existing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.clouds.aws.api import Refused
from gpuform.stack.preflight.aws import Aws
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of


def checks(env: Environment) -> Iterator[Check]:
    """One check: IAM permissions alone give no access to an EKS cluster, so an `up` could fail half-way.

    A new cluster has an access entry for its creator, and EKS refuses a second one for the same principal
    (`components/eks_cluster.py`). An existing cluster must have an entry for the caller.
    """
    cluster = cluster_of(env)

    def judge(aws: Aws) -> Judged:
        caller = aws.ask("sts", "get_caller_identity", region=aws.home)["Arn"]
        if caller.endswith(":root"):
            return Judged(
                "FAIL", "the caller is the root user, which cannot have an EKS access entry", "use a role"
            )
        if not described(env, aws):
            return _new(caller, cluster.admins)
        entries = aws.ask("eks", "list_access_entries", clusterName=env.name)["accessEntries"]
        if any(same(caller, entry) for entry in entries):
            return Judged("PASS", f"cluster {env.name} exists, and has an access entry of the caller")
        fact = f"cluster {env.name} exists, and has no access entry of {caller}"
        return Judged("FAIL", fact, "run as one of cluster.admins, or have one of them add the caller")

    by_hand = f"aws eks list-access-entries --cluster-name {env.name} --region {cluster.region}"
    yield Check("access to the cluster", by_hand, judge)


def described(env: Environment, aws: Aws) -> Mapping[str, Any]:
    """EKS's description of the cluster; empty if it does not exist."""
    try:
        found: Mapping[str, Any] = aws.ask("eks", "describe_cluster", name=env.name)["cluster"]
    except Refused as refused:
        if refused.code != "ResourceNotFoundException":
            raise
        return {}
    return found


def _new(caller: str, admins: tuple[str, ...]) -> Judged:
    twice = [admin for admin in admins if same(caller, admin)]
    if twice:
        fact = f"the cluster's creator gets an access entry, and EKS refuses a second one for {twice[0]}"
        return Judged("FAIL", fact, "remove it from cluster.admins, or run the first `up` as another role")
    return Judged("PASS", "no cluster yet; its creator gets access")


def same(caller: str, principal: str) -> bool:
    """Whether STS's ARN of a caller belongs to that IAM principal.

    A session's ARN has its role's name without the path, so two roles of one account that differ only in
    their path are considered equal.
    """
    return _who(caller) == _who(principal)


def _who(arn: str) -> tuple[str, str, str]:
    """Account, kind and name: the same for ``sts::1:assumed-role/deploy/x`` and ``iam::1:role/ci/deploy``."""
    account, _, rest = arn.split(":", 4)[4].partition(":")
    kind, *names = rest.split("/")
    if kind == "assumed-role":
        return account, "role", names[0]
    return account, kind, names[-1] if names else ""
