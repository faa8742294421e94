"""The namespaces that a cluster and gpuform use for themselves; no environment may name one."""

from __future__ import annotations

from infra.model.base.errors import InputError

CULLER = "gpuform-notebooks"
"""Namespace of the program that stops idle notebooks."""
GPU_OPERATOR, PLATFORM = "gpu-operator", "gpuform-platform"
"""Namespaces of NVIDIA's operator, and of our programs if the cluster has an operator of its own."""
HEALTH = "gpuform-health"
"""Name of the health loop's namespace, service account and Deployment."""
KEDA = "gpuform-keda"
"""Namespace of KEDA."""
KSERVE, CERT_MANAGER = "gpuform-kserve", "gpuform-cert-manager"
"""Namespaces of KServe, and of cert-manager, which issues the certificate of KServe's webhooks."""
KUEUE = "kueue-system"
"""Namespace of Kueue, as in its documentation."""
NETWORK_OPERATOR = "nvidia-network-operator"
"""Namespace of NVIDIA's network operator, as in its documentation."""
PLACEHOLDER = "gpuform-placeholder"
"""Priority class and namespace of placeholder pods, which keep nodes free."""
SCHEDULER = "gpuform-packer"
"""Name of the second scheduler, its profile, namespace and lease, and the schedulerName of its pods."""
TRIAL = "gpuform-trial"
"""Namespace of the readiness gate's pods that try a GPU."""
BUILT_IN = ("default",)
SYSTEM = (
    *("kube-system", "kube-public", "kube-node-lease"),
    *(GPU_OPERATOR, PLATFORM, SCHEDULER, PLACEHOLDER, CULLER, HEALTH, TRIAL, KUEUE, NETWORK_OPERATOR),
)
OF_CLUSTER = ("kube-", "openshift-")
"""Prefixes of namespaces that Kubernetes and OpenShift keep for themselves."""
_RESERVED = (*OF_CLUSTER, "gpuform-")


def is_reserved(name: str) -> bool:
    return name in SYSTEM or name.startswith(_RESERVED)


def check(name: str, path: str) -> None:
    """Refuse a namespace of the cluster's own; the prefix kube- is Kubernetes' (its page on namespaces)."""
    if is_reserved(name):
        raise InputError(path, f"{name} belongs to the cluster", "name another one")
