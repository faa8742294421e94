"""Trust policies: which AWS service may act as a role."""

from __future__ import annotations

from typing import Any

CLUSTER = "eks.amazonaws.com"
NODE = "ec2.amazonaws.com"
POD = "pods.eks.amazonaws.com"

_TAGS_SESSIONS = (CLUSTER, POD)
"""Services that say in a session's tags for which cluster, or pod, they act (EKS user guide)."""


def trust_policy(service: str) -> dict[str, Any]:
    """The document that lets one of the services above assume a role, and nobody else."""
    actions = ["sts:AssumeRole", *(["sts:TagSession"] if service in _TAGS_SESSIONS else [])]
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    return {"Version": "2012-10-17", "Statement": [statement]}
