"""Registers the objects of one of our programs in the cluster as children of its component."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pulumi

from components.manifest import resource, within

START_MINUTES = 10
"""For a pod of one container with a small image; it is also the Kubernetes provider's default."""
ROLES = {
    "ServiceAccount": "account",
    "ClusterRole": "cluster-role",
    "ClusterRoleBinding": "cluster-role-binding",
    "Role": "role",
    "RoleBinding": "role-binding",
    "ConfigMap": "program",
    "Deployment": "deployment",
}


def by_kind(manifest: dict[str, Any]) -> str:
    """The role of an object, for programs with one object of each kind."""
    return ROLES[manifest["kind"]]


def register(
    component: pulumi.ComponentResource,
    name: str,
    manifests: Iterable[dict[str, Any]],
    role: Callable[[dict[str, Any]], str] = by_kind,
) -> None:
    """Register each as ``name-role``, after those before it: the pod starts after its program and rights."""
    before: list[pulumi.Resource] = []
    for manifest in manifests:
        times = within(START_MINUTES, START_MINUTES) if manifest["kind"] == "Deployment" else None
        child = pulumi.ResourceOptions(parent=component, depends_on=list(before), custom_timeouts=times)
        before.append(resource(f"{name}-{role(manifest)}", manifest, child))
