"""Objects of a gpuform program in the cluster: account, roles, a Deployment with a confined pod.

For programs that may run on any node. Each defines its own container, rights and number of replicas.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra import versions
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import gpu_operator, sharing
from infra.plan.manifest import CONFINED, Manifest, manifest, nonroot, own_labels

NONROOT = 65532
SOURCE = Path(__file__).resolve().parent.parent / "incluster"
_RBAC = "rbac.authorization.k8s.io"
_GRACE_S = 5


@dataclass(frozen=True)
class Program:
    """One program; ``name`` is also the name of its account and its Deployment."""

    env: Environment
    name: str
    namespace: str

    def metadata(self, name: str = "", namespace: str | None = None) -> Manifest:
        """Of an object ``name``, cluster-wide without a namespace; by default of its Deployment."""
        fields = {"name": name or self.name, "labels": own_labels(self.env, APP_NAME=self.name)}
        object_namespace = namespace if name else self.namespace
        return {**fields, "namespace": object_namespace} if object_namespace else fields

    def account(self) -> Manifest:
        # The pod mounts its token instead.
        return manifest("ServiceAccount", self.metadata(), automountServiceAccountToken=False)

    def binding(self, name: str, namespace: str | None = None, role: str | None = None) -> Manifest:
        """Binding of its account to ``role`` (default: ``name``); cluster-wide without a namespace."""
        kind = "Role" if namespace else "ClusterRole"
        return manifest(
            f"{kind}Binding",
            self.metadata(name, namespace),
            f"{_RBAC}/v1",
            roleRef={"apiGroup": _RBAC, "kind": kind, "name": role or name},
            subjects=[{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
        )

    def role_and_binding(
        self, name: str, rules: list[Manifest], namespace: str | None = None
    ) -> tuple[Manifest, ...]:
        """A role and its binding."""
        kind, metadata = "Role" if namespace else "ClusterRole", self.metadata(name, namespace)
        return manifest(kind, metadata, f"{_RBAC}/v1", rules=rules), self.binding(name, namespace)

    def deployment(self, replicas: int, pod: Manifest, **spec: Any) -> Manifest:
        selector = {labels.APP_NAME: self.name}
        template = {"metadata": {"labels": selector}, "spec": pod}
        spec = {"replicas": replicas, "selector": {"matchLabels": selector}, **spec, "template": template}
        return manifest("Deployment", self.metadata(), "apps/v1", spec=spec)

    def pod(self, container: Manifest, *volumes: Manifest, **more: Any) -> Manifest:
        """Pod spec, placed like the operator's own pods: off the GPU nodes, unless there are no others."""
        return {
            "automountServiceAccountToken": True,
            "containers": [container],
            "nodeSelector": {labels.OS: "linux"},
            "priorityClassName": "system-cluster-critical",
            "securityContext": nonroot(NONROOT, runAsGroup=NONROOT),
            "serviceAccountName": self.name,
            "tolerations": gpu_operator.system_tolerations(self.env),
            **more,
            "volumes": list(volumes),
        }

    def config_map(self, data: dict[str, str]) -> Manifest:
        """In the program's namespace; its name ends in a hash of its content."""
        return sharing.config_map(self.env, self.name, data, self.namespace)

    def script_pod(
        self, files: tuple[str, ...], config: tuple[str, Any], folder: str, memory: str = "128Mi", **more: Any
    ) -> tuple[Manifest, Manifest]:
        """ConfigMap and pod of a Python program: ``files`` of ``infra/incluster``, of which the first runs.

        ``config`` is the name of its settings and their value, in JSON; both are mounted in ``folder``. The
        ConfigMap is named by its content, so a change makes a new pod. ``memory`` is the limit, ``more`` are
        further fields of the container.
        """
        data = {name: (SOURCE / name).read_text(encoding="utf-8") for name in files}
        config_map = self.config_map(
            {**data, config[0]: json.dumps(config[1], indent=1, sort_keys=True) + "\n"}
        )
        container = {
            "name": self.name,
            "image": self.env.image(versions.READINESS_GATE_IMAGE),
            # -I keeps the environment out of the interpreter, -B its bytecode off a read-only file system.
            "command": ["python3", "-I", "-B", f"{folder}/{files[0]}", f"{folder}/{config[0]}"],
            **more,
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": memory}},
            "securityContext": CONFINED,
            "volumeMounts": [{"name": "program", "mountPath": folder, "readOnly": True}],
        }
        volume = {"name": "program", "configMap": {"name": config_map["metadata"]["name"]}}
        return config_map, self.pod(container, volume, terminationGracePeriodSeconds=_GRACE_S)
