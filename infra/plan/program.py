"""Objects of a gpuform program in the cluster: account, roles, a Deployment with a confined pod.

For programs that may run on any node. Each defines its own container, rights and number of replicas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.model import labels
from infra.model.environment import Environment
from infra.plan import gpu_operator

Manifest = dict[str, Any]

NONROOT = 65532
CONFINED: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Security context of a container that needs no privilege and no writable disk."""
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Program:
    """One program; ``name`` is also the name of its account and its Deployment."""

    env: Environment
    name: str
    namespace: str

    def metadata(self, name: str, namespace: str | None = None) -> Manifest:
        own = {
            labels.APP_NAME: self.name,
            labels.ENVIRONMENT: self.env.name,
            labels.MANAGED_BY: "gpuform",
        }
        return {"name": name, "labels": own} | ({"namespace": namespace} if namespace else {})

    def account(self) -> Manifest:
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": self.metadata(self.name, self.namespace),
            "automountServiceAccountToken": False,  # the pod mounts it instead
        }

    def role(self, name: str, rules: list[Manifest], namespace: str | None = None) -> Manifest:
        kind = "Role" if namespace else "ClusterRole"
        return self._rbac(kind, self.metadata(name, namespace), rules=rules)

    def binding(self, name: str, namespace: str | None = None, role: str | None = None) -> Manifest:
        """Binding of its account to ``role`` (default: ``name``); cluster-wide without a namespace."""
        kind = "Role" if namespace else "ClusterRole"
        return self._rbac(
            f"{kind}Binding",
            self.metadata(name, namespace),
            roleRef={"apiGroup": _RBAC, "kind": kind, "name": role or name},
            subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
        )

    def granted(self, name: str, rules: list[Manifest], namespace: str | None = None) -> tuple[Manifest, ...]:
        return self.role(name, rules, namespace), self.binding(name, namespace)

    def deployment(self, replicas: int, pod: Manifest, **spec: Any) -> Manifest:
        selector = {labels.APP_NAME: self.name}
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": self.metadata(self.name, self.namespace),
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": selector},
                **spec,
                "template": {"metadata": {"labels": selector}, "spec": pod},
            },
        }

    def pod(self, container: Manifest, *volumes: Manifest, **more: Any) -> Manifest:
        """Pod spec, placed like the operator's own pods: off the GPU nodes, unless there are no others."""
        return {
            "automountServiceAccountToken": True,
            "containers": [container],
            "nodeSelector": {labels.OS: "linux"},
            "priorityClassName": "system-cluster-critical",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": NONROOT,
                "runAsGroup": NONROOT,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "serviceAccountName": self.name,
            "tolerations": gpu_operator.somewhere_tolerations(self.env),
            **more,
            "volumes": list(volumes),
        }

    def _rbac(self, kind: str, metadata: Manifest, **content: Any) -> Manifest:
        return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **content}
