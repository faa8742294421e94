"""IAM policies of Karpenter's controller, its nodes and its queue (``iam.yaml``), and trust policies.

The controller's statements are upstream's, from the CloudFormation file of Karpenter 1.14.3, under the same
Sids: what it creates must carry the cluster's tags, and it changes and deletes only what carries them. A test
compares each statement with that file and lists the differences and their reasons.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.plan import templates

Statement = dict[str, Any]
Policy = dict[str, Any]

VERSION = "2012-10-17"
CLUSTER = "eks.amazonaws.com"
NODE = "ec2.amazonaws.com"
POD = "pods.eks.amazonaws.com"

_TAGS_SESSIONS = (CLUSTER, POD)
"""Services that tag their sessions with the cluster, or pod, that they act for (EKS user guide)."""

_FILE = templates.read(Path(__file__).with_suffix(".yaml"))


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
    return {name: _policy(part, scope) for name, part in _FILE["controller"].items()}


def queue_policy(scope: Scope = UNFILLED) -> Policy:
    return _policy(_FILE["queue"], scope)


INTERRUPTION_EVENTS: Mapping[str, Mapping[str, list[str]]] = _FILE["events"]

QUEUE_RETENTION_S = 300
"""An interruption warning comes two minutes ahead; later it is useless."""


def _policy(part: Mapping[str, Statement], scope: Scope) -> Policy:
    statements = templates.fill(part, templates.with_let(_FILE["let"], vars(scope)))
    entries = [{"Sid": sid, "Effect": "Allow", **statement} for sid, statement in statements.items()]
    return {"Version": VERSION, "Statement": entries}


def trust_policy(service: str) -> dict[str, Any]:
    """The document that lets only the given service (one of the above) assume a role."""
    actions = ["sts:AssumeRole", *(["sts:TagSession"] if service in _TAGS_SESSIONS else [])]
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    return {"Version": VERSION, "Statement": [statement]}
