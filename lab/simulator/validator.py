"""The operator validator: one CUDA job per node once the plugin runs; its success validates the node."""

from __future__ import annotations

import hashlib

from lab.simulator import faults, keys
from lab.simulator.actions import Action, Create
from lab.simulator.objects import Pod
from lab.simulator.world import World

OPERAND, CUDA = "validator", "cuda-validator"
NOT_INITIALIZED = "CUDA error: system not yet initialized (802): the fabric manager does not run"


def ready(world: World, pod: Pod) -> bool:
    """Whether the operand may start in its turn; the validator also waits for its CUDA job to succeed."""
    return pod.operand != OPERAND or any(job.phase == "Succeeded" for job in world.of(CUDA))


def problem(world: World) -> tuple[str, str] | None:
    """Failing container and message, or None; CUDA does not start without the fabric manager."""
    return ("cuda-validation", NOT_INITIALIZED) if faults.breaks(world.node, faults.FABRIC) else None


def act(world: World) -> list[Action]:
    pod = next((p for p in world.of(OPERAND) if p.start == "waits" and not p.deleting), None)
    if pod is None or world.of(CUDA) or not all(world.running(operand) for operand in pod.template.after):
        return []
    return [Create(_job(pod))]


def _job(pod: Pod) -> dict[str, object]:
    kind, name, uid = pod.owner
    _, image = pod.template.containers[0]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"nvidia-cuda-validator-{hashlib.sha256(pod.uid.encode()).hexdigest()[:5]}",
            "namespace": pod.namespace,
            "labels": {"app": "nvidia-cuda-validator", keys.PART_OF: keys.CHART, keys.OPERAND: CUDA},
            "annotations": {keys.RUN_ONCE: "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid}],
        },
        "spec": {
            "nodeName": pod.node,
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": False,
            "tolerations": [dict(toleration) for toleration in pod.template.tolerations],
            "containers": [{"name": CUDA, "image": image, "securityContext": {"privileged": True}}],
        },
    }
