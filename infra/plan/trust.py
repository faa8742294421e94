"""Trust policies: which AWS service may act as a role."""

from __future__ import annotations

from typing import Any

CLUSTER = "eks.amazonaws.com"
NODE = "ec2.amazonaws.com"
POD = "pods.eks.amazonaws.com"

_TAGS_SESSIONS = (CLUSTER, POD)
"""Services that tag their sessions with the cluster, or pod, that they act for (EKS user guide)."""


def trust_policy(service: str) -> dict[str, Any]:
    """The document that lets only the given service (one of the above) assume a role."""
    actions = ["sts:AssumeRole", *(["sts:TagSession"] if service in _TAGS_SESSIONS else [])]
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    return {"Version": "2012-10-17", "Statement": [statement]}
