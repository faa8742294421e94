"""What a program of ours is in the cluster: an account, roles, a Deployment whose pod may do next to nothing.

For programs that only have to run somewhere. Each says for itself what it runs, what it may, and how many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.model import labels
from infra.model.environment import Environment
from infra.plan import gpu_operator

Manifest = dict[str, Any]

NOBODY = 65532
CONFINED: Manifest = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
}
"""Security context of a container that needs no right and no disk."""
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class Program:
    """One of them; ``name`` is its account's and its Deployment's as well."""

    env: Environment
    name: str
    namespace: str

    def metadata(self, name: str, namespace: str | None = None) -> Manifest:
        """Of any object that belongs to it."""
        own = {
            labels.APP_NAME: self.name,
            labels.ENVIRONMENT: self.env.name,
            labels.MANAGED_BY: "gpuform",
        }
        return {"name": name, "labels": own} | ({"namespace": namespace} if namespace else {})

    def account(self) -> Manifest:
        """Its ServiceAccount."""
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": self.metadata(self.name, self.namespace),
            "automountServiceAccountToken": False,  # the pod says that it wants it
        }

    def role(self, name: str, rules: list[Manifest], namespace: str | None = None) -> Manifest:
        """A Role in the namespace, a ClusterRole without one."""
        kind = "Role" if namespace else "ClusterRole"
        return self._rbac(kind, self.metadata(name, namespace), rules=rules)

    def binding(self, name: str, namespace: str | None = None, role: str | None = None) -> Manifest:
        """Its account with a role, of its own name if left out; of the whole cluster without namespace."""
        kind = "Role" if namespace else "ClusterRole"
        return self._rbac(
            f"{kind}Binding",
            self.metadata(name, namespace),
            roleRef={"apiGroup": _RBAC, "kind": kind, "name": role or name},
            subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
        )

    def granted(self, name: str, rules: list[Manifest], namespace: str | None = None) -> tuple[Manifest, ...]:
        """A role and its binding."""
        return self.role(name, rules, namespace), self.binding(name, namespace)

    def deployment(self, replicas: int, pod: Manifest, **spec: Any) -> Manifest:
        """Its Deployment."""
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
        """A pod where the operator's own goes: off the GPU nodes, unless there are no others."""
        return {
            "automountServiceAccountToken": True,
            "containers": [container],
            "nodeSelector": {labels.OS: "linux"},
            "priorityClassName": "system-cluster-critical",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": NOBODY,
                "runAsGroup": NOBODY,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "serviceAccountName": self.name,
            "tolerations": gpu_operator.somewhere_tolerations(self.env),
            **more,
            "volumes": list(volumes),
        }

    def _rbac(self, kind: str, metadata: Manifest, **content: Any) -> Manifest:
        return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **content}
