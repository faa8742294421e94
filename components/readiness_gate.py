"""The gate that lets pods onto new GPU nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_kubernetes.core.v1 import ServiceAccount

from components.manifest import resource
from infra.model.environment import Environment
from infra.plan.readiness_gate import manifests

ROLES = {
    "ServiceAccount": "account",
    "ClusterRole": "cluster-role",
    "ClusterRoleBinding": "cluster-role-binding",
    "Role": "role",
    "RoleBinding": "role-binding",
    "ConfigMap": "program",
    "Deployment": "deployment",
}


@dataclass(frozen=True, kw_only=True)
class ReadinessGateArgs:
    """Whose pools have nodes that wait for it."""

    environment: Environment


class ReadinessGate(pulumi.ComponentResource):
    """A Deployment with its program and its rights.

    Nodes that wait keep waiting while it is away. It goes after the pools whose nodes wait for it.
    """

    def __init__(
        self, name: str, args: ReadinessGateArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        """Register its objects, each after those before it: it starts with its program and its rights."""
        super().__init__("gpuform:platform:ReadinessGate", name, None, opts)
        before: list[pulumi.Resource] = []
        for manifest in manifests(args.environment):
            child = pulumi.ResourceOptions(parent=self, depends_on=list(before))
            before.append(_registered(f"{name}-{ROLES[manifest['kind']]}", manifest, child))
        self.register_outputs({})


def _registered(
    name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    kind, metadata = manifest["kind"], manifest["metadata"]
    if kind == "ServiceAccount":
        mounted = manifest["automountServiceAccountToken"]
        return ServiceAccount(name, metadata=metadata, automount_service_account_token=mounted, opts=opts)
    if kind not in ("ClusterRole", "Role", "ClusterRoleBinding", "RoleBinding"):
        return resource(name, manifest, opts)
    from pulumi_kubernetes.rbac import v1 as rbac  # here, because most environments need no rights

    if "rules" in manifest:
        role = rbac.ClusterRole if kind == "ClusterRole" else rbac.Role
        return role(name, metadata=metadata, rules=manifest["rules"], opts=opts)
    binding = rbac.ClusterRoleBinding if kind == "ClusterRoleBinding" else rbac.RoleBinding
    role_ref, subjects = manifest["roleRef"], manifest["subjects"]
    return binding(name, metadata=metadata, role_ref=role_ref, subjects=subjects, opts=opts)
