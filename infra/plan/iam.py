"""IAM policies of Karpenter's controller and its nodes, and the policy of the interruption queue.

The controller's statements are upstream's, from the CloudFormation file of Karpenter 1.14.1, under the same
Sids: what it creates must carry the cluster's tags, and it changes and deletes only what carries them. A test
compares each statement with that file and lists the differences and their reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Statement = dict[str, Any]
Policy = dict[str, Any]

VERSION = "2012-10-17"

_OWNED = "kubernetes.io/cluster/{cluster}"
_NAME_TAG = "eks:eks-cluster-name"
_REGION_TAG = "topology.kubernetes.io/region"
_EC2 = "arn:{partition}:ec2:{region}:"
_MADE = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
_PROFILES = "arn:{partition}:iam::{account}:instance-profile/*"
_CLUSTER_ARN = "arn:{partition}:eks:{region}:{account}:cluster/{cluster}"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Values of the placeholders in the policies; an omitted one stays in braces, to be filled in later."""

    cluster: str = "{cluster}"
    partition: str = "{partition}"
    region: str = "{region}"
    account: str = "{account}"
    queue_arn: str = "{queue_arn}"
    node_role_arn: str = "{node_role_arn}"


UNFILLED = Scope()

NODE_POLICIES = (
    "AmazonEKSWorkerNodePolicy",
    "AmazonEKS_CNI_Policy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
"""AWS managed policies of a node: join, assign pod addresses, pull images, SSM access instead of ssh."""


def node_role_policies(partition: str = "{partition}") -> tuple[str, ...]:
    """ARNs of the policies of a node's role."""
    return tuple(f"arn:{partition}:iam::aws:policy/{name}" for name in NODE_POLICIES)


def controller_policies(scope: Scope = UNFILLED) -> dict[str, Policy]:
    """The controller's policy documents by short name; several, as one would exceed IAM's size limit."""
    documents = {
        "node-lifecycle": _node_lifecycle(),
        "iam-integration": _iam_integration(),
        "eks-integration": [
            _allow("AllowAPIServerEndpointDiscovery", "eks:DescribeCluster", _CLUSTER_ARN),
        ],
        "interruption": [
            _allow(
                "AllowInterruptionQueueActions",
                ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"],
                "{queue_arn}",
            ),
        ],
        "resource-discovery": _resource_discovery(),
    }
    return {name: _fill(_policy(statements), vars(scope)) for name, statements in documents.items()}


def queue_policy(scope: Scope = UNFILLED) -> Policy:
    """AWS services may send events to the queue; access without TLS is denied."""
    services = ["events.amazonaws.com", "sqs.amazonaws.com"]
    allow = {
        "Sid": "AllowEvents",
        "Effect": "Allow",
        "Principal": {"Service": services},
        "Action": "sqs:SendMessage",
        "Resource": "{queue_arn}",
    }
    deny = {
        "Sid": "DenyHTTP",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": "{queue_arn}",
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    filled: Policy = _fill(_policy([allow, deny]), vars(scope))
    return filled


INTERRUPTION_EVENTS: Mapping[str, Mapping[str, list[str]]] = {
    "scheduled-change": {"source": ["aws.health"], "detail-type": ["AWS Health Event"]},
    "spot-interruption": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Spot Instance Interruption Warning"],
    },
    "rebalance": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance Rebalance Recommendation"]},
    "state-change": {"source": ["aws.ec2"], "detail-type": ["EC2 Instance State-change Notification"]},
    "reservation-interruption": {
        "source": ["aws.ec2"],
        "detail-type": ["EC2 Capacity Reservation Instance Interruption Warning"],
    },
}
"""EventBridge patterns, one rule each; the target of each rule is the queue."""

QUEUE_RETENTION_S = 300
"""An interruption warning comes two minutes ahead; later it is useless."""


def _node_lifecycle() -> list[Statement]:
    ours_asked = {f"aws:RequestTag/{_OWNED}": "owned", f"aws:RequestTag/{_NAME_TAG}": "{cluster}"}
    pool_asked = {"aws:RequestTag/karpenter.sh/nodepool": "*"}
    ours = {f"aws:ResourceTag/{_OWNED}": "owned"}
    pool = {"aws:ResourceTag/karpenter.sh/nodepool": "*"}
    launch = ["ec2:RunInstances", "ec2:CreateFleet"]
    makes = ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]
    used = ("security-group", "subnet", "capacity-reservation", "placement-group")
    made = [f"{_EC2}*:{kind}/*" for kind in _MADE]
    return [
        _allow(
            "AllowScopedEC2InstanceAccessActions",
            launch,
            [f"{_EC2}:image/*", f"{_EC2}:snapshot/*", *(f"{_EC2}*:{kind}/*" for kind in used)],
        ),
        _allow(
            "AllowScopedEC2LaunchTemplateAccessActions",
            launch,
            f"{_EC2}*:launch-template/*",
            {"StringEquals": ours, "StringLike": pool},
        ),
        _allow(
            "AllowScopedEC2InstanceActionsWithTags",
            [*launch, "ec2:CreateLaunchTemplate"],
            made,
            {"StringEquals": ours_asked, "StringLike": pool_asked},
        ),
        _allow(
            "AllowScopedResourceCreationTagging",
            "ec2:CreateTags",
            made,
            {"StringEquals": {**ours_asked, "ec2:CreateAction": makes}, "StringLike": pool_asked},
        ),
        _allow(
            "AllowScopedResourceTagging",
            "ec2:CreateTags",
            f"{_EC2}*:instance/*",
            {
                "StringEquals": ours,
                "StringLike": pool,
                "StringEqualsIfExists": {f"aws:RequestTag/{_NAME_TAG}": "{cluster}"},
                "ForAllValues:StringEquals": {"aws:TagKeys": [_NAME_TAG, "karpenter.sh/nodeclaim", "Name"]},
            },
        ),
        _allow(
            "AllowScopedDeletion",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            [f"{_EC2}*:instance/*", f"{_EC2}*:launch-template/*"],
            {"StringEquals": ours, "StringLike": pool},
        ),
    ]


def _iam_integration() -> list[Statement]:
    asked = {
        f"aws:RequestTag/{_OWNED}": "owned",
        f"aws:RequestTag/{_NAME_TAG}": "{cluster}",
        f"aws:RequestTag/{_REGION_TAG}": "{region}",
    }
    there = {f"aws:ResourceTag/{_OWNED}": "owned", f"aws:ResourceTag/{_REGION_TAG}": "{region}"}
    class_asked = {"aws:RequestTag/karpenter.k8s.aws/ec2nodeclass": "*"}
    class_there = {"aws:ResourceTag/karpenter.k8s.aws/ec2nodeclass": "*"}
    instances = {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}
    return [
        _allow("AllowPassingInstanceRole", "iam:PassRole", "{node_role_arn}", {"StringEquals": instances}),
        _allow(
            "AllowScopedInstanceProfileCreationActions",
            ["iam:CreateInstanceProfile"],
            _PROFILES,
            {"StringEquals": asked, "StringLike": class_asked},
        ),
        _allow(
            "AllowScopedInstanceProfileTagActions",
            ["iam:TagInstanceProfile"],
            _PROFILES,
            {"StringEquals": {**there, **asked}, "StringLike": {**class_there, **class_asked}},
        ),
        _allow(
            "AllowScopedInstanceProfileActions",
            [
                "iam:AddRoleToInstanceProfile",
                "iam:RemoveRoleFromInstanceProfile",
                "iam:DeleteInstanceProfile",
            ],
            _PROFILES,
            {"StringEquals": there, "StringLike": class_there},
        ),
    ]


def _resource_discovery() -> list[Statement]:
    reads = (
        *("CapacityReservations", "Images", "Instances", "InstanceStatus", "InstanceTypeOfferings"),
        *(
            "InstanceTypes",
            "LaunchTemplates",
            "PlacementGroups",
            "SecurityGroups",
            "SpotPriceHistory",
            "Subnets",
        ),
    )
    here = {"StringEquals": {"aws:RequestedRegion": "{region}"}}
    parameters = "arn:{partition}:ssm:{region}::parameter/aws/service/*"
    return [
        _allow("AllowRegionalReadActions", [f"ec2:Describe{what}" for what in reads], "*", here),
        _allow("AllowSSMReadActions", "ssm:GetParameter", parameters),
        _allow("AllowPricingReadActions", "pricing:GetProducts", "*"),
        _allow("AllowUnscopedInstanceProfileListAction", "iam:ListInstanceProfiles", "*"),
        _allow("AllowInstanceProfileReadActions", "iam:GetInstanceProfile", _PROFILES),
    ]


def _allow(sid: str, action: Any, resource: Any, condition: Any = None) -> Statement:
    found = {"Sid": sid, "Effect": "Allow", "Action": action, "Resource": resource}
    return {**found, "Condition": condition} if condition else found


def _policy(statements: list[Statement]) -> Policy:
    return {"Version": VERSION, "Statement": statements}


def _fill(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return value.format_map(places)
    if isinstance(value, list):
        return [_fill(item, places) for item in value]
    return {_fill(key, places): _fill(item, places) for key, item in value.items()}
