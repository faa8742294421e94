"""The caller's identity, the region and zones available to it, its access to the cluster, and roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.clouds.aws.preflight.account_api import Aws, home
from gpuform.stack.preflight.check import Check, Judged
from infra.model.aws import AwsCluster
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of

NOT_OF_EKS = ("use1-az3", "usw1-az2", "cac1-az3")
"""Zone ids in which a cluster's subnets must not be (EKS user guide, subnet requirements)."""
SPOT = ("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
MADE_BY_AWS = {
    "AWSServiceRoleForAmazonEKS": ("eks.amazonaws.com", "the first cluster"),
    "AWSServiceRoleForAmazonEKSNodegroup": ("eks-nodegroup.amazonaws.com", "the first node group"),
    "AWSServiceRoleForAutoScaling": ("autoscaling.amazonaws.com", "the first node group"),
}
"""Roles that AWS creates: the service they belong to, and the resource with which they are created."""


def credentials(cluster: AwsCluster) -> Check:
    """The caller's identity: every other check needs valid credentials."""
    by_hand = f"aws sts get-caller-identity --region {home(cluster.region)}"

    def judge(aws: Aws) -> Judged:
        try:
            who = aws.ask("sts", "get_caller_identity", region=aws.home)
        except Failure as failure:
            return Judged("FAIL", failure.fact, "set AWS_PROFILE, or: aws sso login, or: aws configure")
        return Judged("PASS", f"account {who['Account']} as {who['Arn']}")

    return Check("credentials", by_hand, judge)


def region(cluster: AwsCluster) -> Check:
    """The region exists and the account has it: regions since 2019 must be enabled (AWS account guide)."""
    name = cluster.region
    by_hand = f"aws ec2 describe-regions --all-regions --region-names {name} --region {home(name)}"

    def judge(aws: Aws) -> Judged:
        named = {"region": aws.home, "AllRegions": True, "RegionNames": [name]}
        found = aws.find(("InvalidParameterValue",), "ec2", "describe_regions", **named).get("Regions")
        if not found:
            return Judged("FAIL", "AWS has no such region", "write another one as cluster.region")
        status = found[0].get("OptInStatus", "opt-in-not-required")
        if status == "not-opted-in":
            return Judged(
                "FAIL", "not enabled for the account", f"aws account enable-region --region-name {name}"
            )
        return Judged("PASS", "enabled")

    return Check(f"region {name}", by_hand, judge)


def zones(cluster: AwsCluster) -> Iterator[Check]:
    """The network's zones exist, under this account's zone names, and accept new machines."""
    names = cluster.network.zones
    listed = " ".join(names)

    def judge(aws: Aws) -> Judged:
        found = aws.ask("ec2", "describe_availability_zones")["AvailabilityZones"]
        there = {zone["ZoneName"]: zone.get("State", "available") for zone in found}
        missing = [name for name in names if name not in there]
        if missing:
            fact = f"the account has no {', '.join(missing)}"
            return Judged("FAIL", fact, f"zones of the region: {', '.join(sorted(there))}")
        excluded = [
            f"{zone['ZoneName']} is {zone['ZoneId']}"
            for zone in found
            if zone["ZoneName"] in names and zone.get("ZoneId") in NOT_OF_EKS
        ]
        if excluded:
            fact = f"{', '.join(excluded)} in this account, where EKS creates no control plane"
            return Judged("FAIL", fact, "declare another zone for the network")
        troubled = [f"{name} is {there[name]}" for name in names if there[name] != "available"]
        if troubled:
            return Judged("FAIL", "; ".join(troubled), "write other zones, or wait")
        return Judged("PASS", ", ".join(names))

    yield Check(
        "zones", f"aws ec2 describe-availability-zones --zone-names {listed} --region {cluster.region}", judge
    )


def access(env: Environment) -> Iterator[Check]:
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
    found = aws.find(("ResourceNotFoundException",), "eks", "describe_cluster", name=env.name)
    return dict(found.get("cluster") or {})


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


def roles(env: Environment) -> Iterator[Check]:
    """One check for each service-linked role; the spot role only if a pool buys spot.

    AWS creates most of them on demand. EKS creates its two with the first cluster and node group (EKS user
    guide, using service-linked roles), EC2 Auto Scaling its own with the first group, all if the caller may
    ``iam:CreateServiceLinkedRole``. EC2 does not create the spot role for an API request from a caller
    without that permission (EC2 user guide), and Karpenter's role does not have it (`infra/plan/iam.py`):
    without the spot role, Karpenter starts no spot node. For spot nodes of a managed node group, Auto Scaling
    creates it (AWS managed policy AutoScalingServiceRolePolicy, statement EC2SpotManagement).
    """
    for name, (service, when) in MADE_BY_AWS.items():
        missing = f"AWS creates it with {when}, if the caller has iam:CreateServiceLinkedRole"
        yield _role(name, Judged("SKIP", f"does not exist yet: {missing}", _make(service)))
    spot = [pool for pool in env.pools if "spot" in pool.capacity]
    if any(pool.by_karpenter for pool in spot):
        pools = ", ".join(pool.name for pool in spot if pool.by_karpenter)
        fact = f"does not exist, and Karpenter may not create it: no spot node of pool {pools} would start"
        yield _role(SPOT[0], Judged("FAIL", fact, _make(SPOT[1])))
    elif spot:
        yield _role(
            SPOT[0], Judged("SKIP", "does not exist yet: EC2 Auto Scaling creates it", _make(SPOT[1]))
        )


def _role(name: str, missing: Judged) -> Check:
    return Check(f"role {name}", f"aws iam get-role --role-name {name}", partial(_role_exists, name, missing))


def _role_exists(name: str, missing: Judged, aws: Aws) -> Judged:
    found = aws.find(("NoSuchEntity",), "iam", "get_role", region=aws.home, RoleName=name)
    return Judged("PASS", "exists") if found else missing


def _make(service: str) -> str:
    return f"aws iam create-service-linked-role --aws-service-name {service}"
