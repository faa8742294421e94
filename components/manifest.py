"""One Kubernetes manifest as one Pulumi resource, under the type that the SDK gives its kind."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pulumi

from infra.plan.charts import ChartRelease

Manifest = Mapping[str, Any]

CORE_NAMES = {"v1": "core/v1"}
"""SDK names of API versions without a group; type tokens have all others as in the manifest."""

KINDS = frozenset(
    {
        ("v1", "ConfigMap"),
        ("v1", "Namespace"),
        ("v1", "Pod"),
        ("v1", "ResourceQuota"),
        ("v1", "Service"),
        ("v1", "ServiceAccount"),
        ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
        ("apps/v1", "Deployment"),
        ("apps/v1", "StatefulSet"),
        ("batch/v1", "Job"),
        ("karpenter.k8s.aws/v1", "EC2NodeClass"),
        ("karpenter.sh/v1", "NodePool"),
        ("karpenter.sh/v1alpha1", "NodeOverlay"),
        ("keda.sh/v1alpha1", "ScaledObject"),
        ("keda.sh/v1alpha1", "TriggerAuthentication"),
        ("kueue.x-k8s.io/v1beta2", "ClusterQueue"),
        ("kueue.x-k8s.io/v1beta2", "Cohort"),
        ("kueue.x-k8s.io/v1beta2", "LocalQueue"),
        ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"),
        ("kueue.x-k8s.io/v1beta2", "Topology"),
        ("mellanox.com/v1alpha1", "NicClusterPolicy"),
        ("monitoring.coreos.com/v1", "PodMonitor"),
        ("monitoring.coreos.com/v1", "PrometheusRule"),
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("node.k8s.io/v1", "RuntimeClass"),
        ("policy/v1", "PodDisruptionBudget"),
        ("rbac.authorization.k8s.io/v1", "ClusterRole"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
        ("rbac.authorization.k8s.io/v1", "Role"),
        ("rbac.authorization.k8s.io/v1", "RoleBinding"),
        ("resource.k8s.io/v1", "ResourceClaimTemplate"),
        ("scheduling.k8s.io/v1", "PriorityClass"),
        ("serving.kserve.io/v1alpha1", "ServingRuntime"),
        ("serving.kserve.io/v1beta1", "InferenceService"),
        ("storage.k8s.io/v1", "StorageClass"),
    }
)
"""Every kind that this project declares by its manifest."""


@functools.cache
def _version() -> str:
    return metadata.version("pulumi-kubernetes")


def resource(name: str, manifest: Manifest, opts: pulumi.ResourceOptions) -> pulumi.CustomResource:
    """Register ``manifest`` under the resource name ``name``.

    Its keys stay as they are. Raises KeyError for a kind that is not in ``KINDS``.
    """
    version, kind = manifest["apiVersion"], manifest["kind"]
    if (version, kind) not in KINDS:
        raise KeyError((version, kind))
    return register(f"kubernetes:{CORE_NAMES.get(version, version)}:{kind}", name, manifest, opts)


def register(
    token: str, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> pulumi.CustomResource:
    """Register a resource of the Kubernetes provider, without the SDK's class of its type.

    A manifest is complete, few outputs are used, and these classes take longer to import than all of the
    program's own modules.
    """
    with_version = pulumi.ResourceOptions.merge(pulumi.ResourceOptions(version=_version()), opts)
    return pulumi.CustomResource(token, name, dict(inputs), with_version)


def timeouts(create: int, update: int, delete: int | None = None) -> pulumi.CustomTimeouts:
    """Minutes in which each operation must end; the provider's own limit for a delete if left out."""
    return pulumi.CustomTimeouts(f"{create}m", f"{update}m", f"{delete}m" if delete else None)


ROOT = Path(__file__).resolve().parent.parent


def helm_release(
    name: str,
    planned: ChartRelease,
    timeout: int,
    opts: pulumi.ResourceOptions,
    atomic: bool = True,
    **options: Any,
) -> pulumi.CustomResource:
    """Register the release as the resource ``name``; if ``atomic``, an upgrade that fails is rolled back.

    ``timeout`` is in seconds; ``options`` are further inputs of the release. Its output is ``status``.
    """
    inputs = {
        "chart": planned.chart if planned.version else _own_chart(ROOT / planned.chart),
        "version": planned.version,
        "repositoryOpts": {"repo": planned.repository} if planned.repository else None,
        "namespace": planned.namespace,
        "name": planned.name,
        "values": planned.values,
        "skipCrds": planned.skip_crds,
        "atomic": atomic,
        "timeout": timeout,
        "compat": "true",  # as the SDK's class
        "status": None,
        **options,
    }
    return register("kubernetes:helm.sh/v3:Release", name, inputs, opts)


def _own_chart(chart: Path) -> str:
    """Relative in a checkout, so that the base of a preview, in another folder, has the same."""
    return os.path.relpath(chart) if Path.cwd().is_relative_to(ROOT) else str(chart)
