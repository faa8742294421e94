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
from infra.plan.program import CONFINED, Program

Manifest = dict[str, Any]

NAME = "readiness-gate"
PROGRAM = "readiness_gate.py"
FILES = (PROGRAM, "proof.py")
POOLS = "pools.json"
SOURCE = Path(__file__).resolve().parent.parent / "incluster"
FOLDER = "/gate"


def manifests(env: Environment) -> tuple[Manifest, ...]:
    """Everything that the gate is, in the order in which it works; nothing where no node waits for it."""
    if not startup.any_gated(env):
        return ()
    asked = json.dumps(pools(env), indent=1, sort_keys=True) + "\n"
    program = {name: (SOURCE / name).read_text(encoding="utf-8") for name in FILES}
    script = sharing.config_map(env, NAME, {**program, POOLS: asked})
    gate = Program(env, NAME, sharing.NAMESPACE)
    deployment = gate.deployment(1, _pod(gate, script["metadata"]["name"]))
    return (gate.account(), *_access(env, gate), script, deployment)


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


def _access(env: Environment, gate: Program) -> tuple[Manifest, ...]:
    """Nodes are nobody's namespace; the operands' pods are in the gate's own."""
    on_nodes = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "patch"]}
    on_pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    on_slices = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["list"]}
    claimed = [on_slices] if any(pool.by_claim for pool in env.pools) else []
    return (
        *gate.granted(f"gpuform-{NAME}", [on_nodes, *claimed]),
        *gate.granted(NAME, [on_pods], gate.namespace),
    )


def _pod(gate: Program, config_map: str) -> Manifest:
    """On a GPU node none of them would ever be let in."""
    volume = {"name": "program", "configMap": {"name": config_map}}
    return gate.pod(_container(), volume, terminationGracePeriodSeconds=5)


def _container() -> Manifest:
    return {
        "name": NAME,
        "image": versions.READINESS_GATE_IMAGE,
        # -I keeps the environment out of the interpreter, -B its bytecode off a read-only file system.
        "command": ["python3", "-I", "-B", f"{FOLDER}/{PROGRAM}", f"{FOLDER}/{POOLS}"],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": CONFINED,
        "volumeMounts": [{"name": "program", "mountPath": FOLDER, "readOnly": True}],
    }
