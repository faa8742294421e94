"""Service-linked roles, with which EKS and EC2 act in the account.

AWS creates most of them on demand. EKS creates its two with the first cluster and node group (EKS user guide,
using service-linked roles), EC2 Auto Scaling its own with the first group, all if the caller may
``iam:CreateServiceLinkedRole``. EC2 does not create the spot role for an API request from a caller without
that permission (EC2 user guide), and Karpenter's role does not have it (`infra/plan/iam.py`): without the
spot role, Karpenter starts no spot node. For spot nodes of a managed node group, Auto Scaling creates it (AWS
managed policy AutoScalingServiceRolePolicy, statement EC2SpotManagement).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from gpuform.clouds.aws.api import Refused
from gpuform.stack.preflight.aws import Aws
from gpuform.stack.preflight.check import Check, Judged
from infra.model.environment import Environment

SPOT = ("AWSServiceRoleForEC2Spot", "spot.amazonaws.com")
MADE_BY_AWS = {
    "AWSServiceRoleForAmazonEKS": ("eks.amazonaws.com", "the first cluster"),
    "AWSServiceRoleForAmazonEKSNodegroup": ("eks-nodegroup.amazonaws.com", "the first node group"),
    "AWSServiceRoleForAutoScaling": ("autoscaling.amazonaws.com", "the first node group"),
}
"""Roles that AWS creates: the service they belong to, and the resource with which they are created."""


def checks(env: Environment) -> Iterator[Check]:
    """One check for each role; the spot role only if a pool buys spot."""
    for name, (service, when) in MADE_BY_AWS.items():
        missing = f"AWS creates it with {when}, if the caller has iam:CreateServiceLinkedRole"
        yield _check(name, Judged("SKIP", f"does not exist yet: {missing}", _make(service)))
    spot = [pool for pool in env.pools if "spot" in pool.capacity]
    if any(pool.by_karpenter for pool in spot):
        pools = ", ".join(pool.name for pool in spot if pool.by_karpenter)
        fact = f"does not exist, and Karpenter may not create it: no spot node of pool {pools} would start"
        yield _check(SPOT[0], Judged("FAIL", fact, _make(SPOT[1])))
    elif spot:
        yield _check(
            SPOT[0], Judged("SKIP", "does not exist yet: EC2 Auto Scaling creates it", _make(SPOT[1]))
        )


def _check(name: str, missing: Judged) -> Check:
    return Check(f"role {name}", f"aws iam get-role --role-name {name}", partial(_judge, name, missing))


def _judge(name: str, missing: Judged, aws: Aws) -> Judged:
    try:
        aws.ask("iam", "get_role", region=aws.home, RoleName=name)
    except Refused as refused:
        if refused.code != "NoSuchEntity":
            raise
        return missing
    return Judged("PASS", "exists")


def _make(service: str) -> str:
    return f"aws iam create-service-linked-role --aws-service-name {service}"
