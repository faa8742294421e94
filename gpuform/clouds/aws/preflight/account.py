"""Read-only queries to AWS about an account, each sent once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.clients.aws.api import AwsError, create_client, translate_errors
from gpuform.stack.preflight.check import Check, Result
from infra.model.aws.cluster import AwsCluster
from infra.model.aws.values import PARTITIONS
from infra.model.environment import Environment
from infra.plan.node_groups import cluster_of

CreateClient = Callable[[str, str], Any]
"""Creates a client of a service in a region, like ``gpuform.clients.aws.api.create_client``."""

_IAM_PREFIX = {"service-quotas": "servicequotas"}
"""Services with another name in IAM than in botocore (service authorization reference)."""

_HOME_REGIONS = {"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}
"""A region of each partition that every account has, for queries about regions that it may not have."""


class Aws:
    """The caller's account, seen from one region.

    Answers are cached: nothing queried here changes within the seconds of a preflight. ``actions`` holds the
    IAM actions that were needed so far.
    """

    def __init__(self, region: str, create: CreateClient = create_client) -> None:
        self.region = region
        self.actions: set[str] = set()
        self._client = functools.cache(create)
        self._answers: dict[str, Mapping[str, Any]] = {}

    def query(
        self, service: str, operation: str, *, region: str | None = None, **parameters: Any
    ) -> Mapping[str, Any]:
        """All pages of the answer. Errors as `gpuform.clients.aws.api.translate_errors`, about the action."""
        with translate_errors(service):
            client = self._client(service, region or self.region)
        action = f"{_IAM_PREFIX.get(service, service)}:{client.meta.method_to_api_mapping[operation]}"
        self.actions.add(action)
        cache_key = f"{action} {region} {sorted(parameters.items())}"
        if cache_key not in self._answers:
            with translate_errors(action):
                self._answers[cache_key] = _request_all(client, operation, parameters)
        return self._answers[cache_key]

    def find(
        self, missing_codes: Collection[str], service: str, operation: str, **parameters: Any
    ) -> Mapping[str, Any]:
        """As ``query``; empty for an error of one of these codes."""
        try:
            return self.query(service, operation, **parameters)
        except AwsError as error:
            if error.code not in missing_codes:
                raise
            return {}


def home_region(region: str) -> str:
    """A region of the same partition that is always enabled."""
    partition = next((name for name, regions in PARTITIONS.items() if region in regions), "aws")
    return _HOME_REGIONS.get(partition, region)


def _request_all(client: Any, operation: str, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    if client.can_paginate(operation):
        answer: Mapping[str, Any] = client.get_paginator(operation).paginate(**parameters).build_full_result()
    else:
        answer = getattr(client, operation)(**parameters)
    return answer


ZONES_WITHOUT_EKS = ("use1-az3", "usw1-az2", "cac1-az3")
"""Zone ids in which a cluster's subnets must not be (EKS user guide, subnet requirements)."""
SPOT_ROLE = ("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
SERVICE_ROLES = {
    "AWSServiceRoleForAmazonEKS": ("eks.amazonaws.com", "the first cluster"),
    "AWSServiceRoleForAmazonEKSNodegroup": ("eks-nodegroup.amazonaws.com", "the first node group"),
    "AWSServiceRoleForAutoScaling": ("autoscaling.amazonaws.com", "the first node group"),
}
"""Roles that AWS creates: the service they belong to, and the resource with which they are created."""


def credentials(cluster: AwsCluster) -> Check:
    """The caller's identity: every other check needs valid credentials."""
    by_hand = f"aws sts get-caller-identity --region {home_region(cluster.region)}"

    def judge(aws: Aws) -> Result:
        try:
            identity = aws.query("sts", "get_caller_identity", region=home_region(aws.region))
        except Failure as failure:
            return Result("FAIL", failure.fact, failure.remedy)
        return Result("PASS", f"account {identity['Account']} as {identity['Arn']}")

    return Check("credentials", by_hand, judge)


def region(cluster: AwsCluster) -> Check:
    """The region exists and the account has it: regions since 2019 must be enabled (AWS account guide)."""
    name = cluster.region
    by_hand = f"aws ec2 describe-regions --all-regions --region-names {name} --region {home_region(name)}"

    def judge(aws: Aws) -> Result:
        parameters = {"region": home_region(aws.region), "AllRegions": True, "RegionNames": [name]}
        regions = aws.find(("InvalidParameterValue",), "ec2", "describe_regions", **parameters).get("Regions")
        if not regions:
            return Result("FAIL", "AWS has no such region", "write another one as cluster.region")
        status = regions[0].get("OptInStatus", "opt-in-not-required")
        if status == "not-opted-in":
            fix = f"aws account enable-region --region-name {name}"
            return Result("FAIL", "not enabled for the account", fix)
        return Result("PASS", "enabled")

    return Check(f"region {name}", by_hand, judge)


def zones(cluster: AwsCluster) -> Iterator[Check]:
    """The network's zones exist, under this account's zone names, and accept new machines."""
    names = cluster.network.zones

    def judge(aws: Aws) -> Result:
        zones = aws.query("ec2", "describe_availability_zones")["AvailabilityZones"]
        states = {zone["ZoneName"]: zone.get("State", "available") for zone in zones}
        missing = [name for name in names if name not in states]
        if missing:
            fact = f"the account has no {', '.join(missing)}"
            return Result("FAIL", fact, f"zones of the region: {', '.join(sorted(states))}")
        without_eks = [
            f"{zone['ZoneName']} is {zone['ZoneId']}"
            for zone in zones
            if zone["ZoneName"] in names and zone.get("ZoneId") in ZONES_WITHOUT_EKS
        ]
        if without_eks:
            fact = f"{', '.join(without_eks)} in this account, where EKS creates no control plane"
            return Result("FAIL", fact, "declare another zone for the network")
        unavailable = [f"{name} is {states[name]}" for name in names if states[name] != "available"]
        if unavailable:
            return Result("FAIL", "; ".join(unavailable), "write other zones, or wait")
        return Result("PASS", ", ".join(names))

    by_hand = f"aws ec2 describe-availability-zones --zone-names {' '.join(names)} --region {cluster.region}"
    yield Check("zones", by_hand, judge)


def access(env: Environment) -> Iterator[Check]:
    """One check: IAM permissions alone give no access to an EKS cluster, so an `up` could fail half-way.

    A new cluster has an access entry for its creator, and EKS refuses a second one for the same principal
    (`components/eks_cluster.py`). An existing cluster must have an entry for the caller.
    """
    cluster = cluster_of(env)

    def judge(aws: Aws) -> Result:
        caller = aws.query("sts", "get_caller_identity", region=home_region(aws.region))["Arn"]
        if caller.endswith(":root"):
            fact = "the caller is the root user, which cannot have an EKS access entry"
            return Result("FAIL", fact, "use a role")
        if not describe_cluster(env, aws):
            return _judge_new_cluster(caller, cluster.admins)
        entries = aws.query("eks", "list_access_entries", clusterName=env.name)["accessEntries"]
        if any(is_same_principal(caller, entry) for entry in entries):
            return Result("PASS", f"cluster {env.name} exists, and has an access entry of the caller")
        fact = f"cluster {env.name} exists, and has no access entry of {caller}"
        return Result("FAIL", fact, "run as one of cluster.admins, or have one of them add the caller")

    by_hand = f"aws eks list-access-entries --cluster-name {env.name} --region {cluster.region}"
    yield Check("access to the cluster", by_hand, judge)


def describe_cluster(env: Environment, aws: Aws) -> Mapping[str, Any]:
    """EKS's description of the cluster; empty if it does not exist."""
    answer = aws.find(("ResourceNotFoundException",), "eks", "describe_cluster", name=env.name)
    return dict(answer.get("cluster") or {})


def _judge_new_cluster(caller: str, admins: tuple[str, ...]) -> Result:
    duplicates = [admin for admin in admins if is_same_principal(caller, admin)]
    if duplicates:
        fact = f"the cluster's creator gets an access entry, and EKS refuses a second one for {duplicates[0]}"
        return Result("FAIL", fact, "remove it from cluster.admins, or run the first `up` as another role")
    return Result("PASS", "no cluster yet; its creator gets access")


def is_same_principal(caller: str, principal: str) -> bool:
    """Whether STS's ARN of a caller belongs to that IAM principal.

    A session's ARN has its role's name without the path, so two roles of one account that differ only in
    their path are considered equal.
    """
    return _principal(caller) == _principal(principal)


def _principal(arn: str) -> tuple[str, str, str]:
    """Account, kind and name: the same for ``sts::1:assumed-role/deploy/x`` and ``iam::1:role/ci/deploy``."""
    account, _, resource = arn.split(":", 4)[4].partition(":")
    kind, *names = resource.split("/")
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
    for name, (service, resource) in SERVICE_ROLES.items():
        condition = f"AWS creates it with {resource}, if the caller has iam:CreateServiceLinkedRole"
        yield _role_check(name, Result("SKIP", f"does not exist yet: {condition}", _create_command(service)))
    spot = [pool for pool in env.pools if "spot" in pool.capacity]
    if any(pool.by_karpenter for pool in spot):
        pools = ", ".join(pool.name for pool in spot if pool.by_karpenter)
        fact = f"does not exist, and Karpenter may not create it: no spot node of pool {pools} would start"
        yield _role_check(SPOT_ROLE[0], Result("FAIL", fact, _create_command(SPOT_ROLE[1])))
    elif spot:
        fact = "does not exist yet: EC2 Auto Scaling creates it"
        yield _role_check(SPOT_ROLE[0], Result("SKIP", fact, _create_command(SPOT_ROLE[1])))


def _role_check(name: str, missing: Result) -> Check:
    return Check(f"role {name}", f"aws iam get-role --role-name {name}", partial(_judge_role, name, missing))


def _judge_role(name: str, missing: Result, aws: Aws) -> Result:
    role = aws.find(("NoSuchEntity",), "iam", "get_role", region=home_region(aws.region), RoleName=name)
    return Result("PASS", "exists") if role else missing


def _create_command(service: str) -> str:
    return f"aws iam create-service-linked-role --aws-service-name {service}"
