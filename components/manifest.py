"""One Kubernetes manifest as one Pulumi resource, typed by the SDK class of its kind."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.batch.v1 import Job
from pulumi_kubernetes.core.v1 import ConfigMap, Namespace, Node, Pod, Service

CLASSES: dict[tuple[str, str], type[pulumi.CustomResource]] = {
    ("v1", "ConfigMap"): ConfigMap,
    ("v1", "Namespace"): Namespace,
    ("v1", "Node"): Node,
    ("v1", "Pod"): Pod,
    ("v1", "Service"): Service,
    ("apps/v1", "Deployment"): Deployment,
    ("batch/v1", "Job"): Job,
}

# Imported when one is declared: these parts of the SDK take time, and few environments have them.
SELDOM: dict[tuple[str, str], tuple[str, str]] = {
    ("node.k8s.io/v1", "RuntimeClass"): ("node.v1", "RuntimeClass"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): ("resource.v1", "ResourceClaimTemplate"),
    ("v1", "ResourceQuota"): ("core.v1", "ResourceQuota"),
    ("v1", "ServiceAccount"): ("core.v1", "ServiceAccount"),
    ("policy/v1", "PodDisruptionBudget"): ("policy.v1", "PodDisruptionBudget"),
    ("scheduling.k8s.io/v1", "PriorityClass"): ("scheduling.v1", "PriorityClass"),
    **{
        ("rbac.authorization.k8s.io/v1", kind): ("rbac.v1", kind)
        for kind in ("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
    },
}

CUSTOM = {("monitoring.coreos.com/v1", "ServiceMonitor")}
"""Kinds of custom resources, which the SDK has no class for."""


def _snake(key: str) -> str:
    """The SDK's spelling of a manifest's own key; what lies below it stays as it is."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).lower()


def resource(name: str, manifest: Mapping[str, Any], opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register ``manifest`` under the resource name ``name``.

    The manifest's keys stay as they are (camelCase): the SDK passes what it need not translate. Raises
    KeyError for a kind that this project does not declare; add it to ``CLASSES``, ``SELDOM`` or ``CUSTOM``.
    """
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    kind = (manifest["apiVersion"], manifest["kind"])
    if kind in CUSTOM:
        custom = importlib.import_module("pulumi_kubernetes.apiextensions").CustomResource
        object_: pulumi.CustomResource = custom(
            name, api_version=manifest["apiVersion"], kind=manifest["kind"], opts=opts, **body
        )
        return object_
    if kind in SELDOM:
        module, name_of_class = SELDOM[kind]
        found = getattr(importlib.import_module(f"pulumi_kubernetes.{module}"), name_of_class)
        made: pulumi.CustomResource = found(name, opts=opts, **{_snake(key): body[key] for key in body})
        return made
    return CLASSES[kind](name, opts=opts, **body)
