"""The readiness gate: one small pod that lifts the startup taint of GPU nodes that have proven themselves.

Its program is ``infra/incluster/readiness_gate.py``, carried by a ConfigMap that is named by its content, so
that another program is another pod; with it, what each pool has to show. It may list and patch nodes, list
ResourceSlices where GPUs are claimed, list the pods beside it, and nothing more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra import versions
from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import device_plugin, gpu_operator, sharing, startup

Manifest = dict[str, Any]

NAME = "readiness-gate"
PROGRAM = "readiness_gate.py"
FILES = (PROGRAM, "proof.py")
POOLS = "pools.json"
SOURCE = Path(__file__).resolve().parent.parent / "incluster"
FOLDER = "/gate"
NOBODY = 65532

_RBAC = "rbac.authorization.k8s.io"


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """Everything that the gate is, in the order in which it works; nothing where no node waits for it."""
    if not startup.any_gated(env):
        return ()
    asked = json.dumps(pools(env), indent=1, sort_keys=True) + "\n"
    program = {name: (SOURCE / name).read_text(encoding="utf-8") for name in FILES}
    script = sharing.config_map(env, NAME, {**program, POOLS: asked})
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": _metadata(env, NAME, sharing.NAMESPACE),
        "automountServiceAccountToken": False,  # the pod says that it wants it
    }
    return (account, *_access(env), script, _deployment(env, script["metadata"]["name"]))


def pools(env: Environment) -> dict[str, Any]:
    """What a node of each pool has to show: labels of discovery, ready operands, and what it offers.

    Karpenter's nodes have their promise with them: an older one is as its pool was when it was born.
    """
    found: dict[str, Any] = {}
    for pool in env.pools:
        if startup.gated(env, pool):
            found[pool.name] = {"labels": [labels.DRIVER_VERSION], "operands": list(operands(env, pool))}
            if not env.by_karpenter(pool):
                found[pool.name]["offers"] = startup.offers(env, pool)
    return found


def operands(env: Environment, pool: Pool) -> tuple[str, ...]:
    """The label ``app`` of the operands that the release runs on the pool's nodes, of those that count.

    What the node image has already is no operand: its absence is no failure. Where GPUs are claimed, no
    device plugin runs, and the validator, which waits for it, does not get ready.
    """
    if pool.by_claim:
        return ()
    if env.ownership.device_plugin == "chart":
        return (device_plugin.NAME,)
    values = gpu_operator.values(env)
    found = {
        "nvidia-driver-daemonset": values["driver"]["enabled"],
        "nvidia-container-toolkit-daemonset": values["toolkit"]["enabled"],
        "nvidia-device-plugin-daemonset": values["devicePlugin"]["enabled"],
        "nvidia-operator-validator": True,
    }
    return tuple(app for app, there in found.items() if there)


def _access(env: Environment) -> tuple[Manifest, ...]:
    """Nodes are nobody's namespace; the operands' pods are in the gate's own."""
    cluster_wide, here = f"gpuform-{NAME}", sharing.NAMESPACE
    on_nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "patch"]}
    on_pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    on_slices = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]}
    claimed = [on_slices] if any(pool.by_claim for pool in env.pools) else []
    return (
        _rbac("ClusterRole", _metadata(env, cluster_wide), rules=[on_nodes, *claimed]),
        _binding("ClusterRole", _metadata(env, cluster_wide)),
        _rbac("Role", _metadata(env, NAME, here), rules=[on_pods]),
        _binding("Role", _metadata(env, NAME, here)),
    )


def _rbac(kind: str, metadata: Manifest, **content: Any) -> Manifest:
    return {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": metadata, **content}


def _binding(kind: str, metadata: Manifest) -> Manifest:
    """The gate's account with the role of the same name."""
    return _rbac(
        f"{kind}Binding",
        metadata,
        roleRef={"apiGroup": _RBAC, "kind": kind, "name": metadata["name"]},
        subjects=[{"kind": "ServiceAccount", "name": NAME, "namespace": sharing.NAMESPACE}],
    )


def _metadata(env: Environment, name: str, namespace: str | None = None) -> Manifest:
    own = {labels.APP_NAME: NAME, labels.ENVIRONMENT: env.name, labels.MANAGED_BY: "gpuform"}
    return {"name": name, "labels": own} | ({"namespace": namespace} if namespace else {})


def _deployment(env: Environment, config_map: str) -> Manifest:
    selector = {labels.APP_NAME: NAME}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(env, NAME, sharing.NAMESPACE),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": selector},
            "template": {"metadata": {"labels": selector}, "spec": _pod(env, config_map)},
        },
    }


def _pod(env: Environment, config_map: str) -> Manifest:
    """A pod where the operator's own goes: off the GPU nodes, or none of them would ever be let in."""
    return {
        "automountServiceAccountToken": True,
        "containers": [_container(env)],
        "nodeSelector": {labels.OS: "linux"},
        "priorityClassName": "system-cluster-critical",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "serviceAccountName": NAME,
        "terminationGracePeriodSeconds": 5,
        "tolerations": gpu_operator.somewhere_tolerations(env),
        "volumes": [{"name": "program", "configMap": {"name": config_map}}],
    }


def _container(env: Environment) -> Manifest:
    return {
        "name": NAME,
        "image": versions.READINESS_GATE_IMAGE,
        # -I keeps the environment out of the interpreter, -B its bytecode off a read-only file system.
        "command": ["python3", "-I", "-B", f"{FOLDER}/{PROGRAM}", f"{FOLDER}/{POOLS}"],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "program", "mountPath": FOLDER, "readOnly": True}],
    }
