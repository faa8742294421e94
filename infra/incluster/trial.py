"""The last proof of a GPU node: a pod like a user's requests one of the node's GPUs and opens it.

The operator's pods, its CUDA validator included, have NVIDIA's RuntimeClass and see all GPUs, also on nodes
where users' pods get none (gpu-operator 26.7.0, cmd/nvidia-validator, VALIDATOR_RUNTIME_CLASS): a container
runtime without CDI starts those without a GPU, and reports no error. So the gate starts a pod of its own,
with the RuntimeClass of the environment's pods, mostly none. It opens the device files and looks for the
driver's libraries among its mounts; the device files alone come from the kubelet (PASS_DEVICE_SPECS, which
the operator sets for the plugin).

Part of the readiness gate's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import hashlib
from typing import Any

from infra.incluster.cluster import parse_time

APP = "gpuform-trial"
"""The pod's label ``app``, and the start of its name."""
RETRY_S = 30
"""Seconds from its creation after which a failed pod is replaced."""
LIBRARIES = ("libcuda.so", "libnvidia-ml.so")
"""Mounted into every container that gets a GPU, by CDI and by NVIDIA's runtime alike."""

Json = dict[str, Any]

PROGRAM = f"""\
import glob, os, sys
def end(text):
    with open('/dev/termination-log', 'w') as log:
        log.write(text)
    sys.exit(text)
nodes = sorted(glob.glob('/dev/nvidia[0-9]*'))
if not nodes or not os.path.exists('/dev/nvidiactl'):
    end('no device file of a GPU (/dev/nvidia*)')
for node in ['/dev/nvidiactl', *nodes]:
    try:
        os.close(os.open(node, os.O_RDWR))
    except OSError as error:
        end(f'it cannot open {{node}}: {{error.strerror}}')
mounted = [line.split()[4].rpartition('/')[2] for line in open('/proc/self/mountinfo')]
if not any(name.startswith({LIBRARIES!r}) for name in mounted):
    end('no library of the driver')
"""
"""What the pod runs: it fails with the reason unless it has a GPU that a program can use."""


def pod_name(node: Json) -> str:
    """The pod's name on this node; a later node of the same name has another one."""
    return f"{APP}-{hashlib.sha256(node['metadata']['uid'].encode()).hexdigest()[:16]}"


def choose_resource(promised: dict[str, int], prefix: str, now: float) -> str | None:
    """The resource to request; None if GPUs are claimed.

    It alternates among those that the node promises: on a node in use, one of them may be exhausted.
    """
    names = sorted(name for name in promised if name.startswith(prefix))
    return names[int(now) // RETRY_S % len(names)] if names else None


def render_pod(node: Json, requested: str, settings: Json) -> Json:
    """The pod. It names its node, so that no scheduler and no taint keeps it away.

    It is owned by the node, and deleted with it.
    """
    meta, amounts = node["metadata"], {requested: "1"}
    spec: Json = {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "trial",
                "image": settings["image"],
                "command": ["python3", "-I", "-B", "-c", PROGRAM],
                "resources": {"requests": amounts, "limits": amounts},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
        "nodeName": meta["name"],
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
    }
    if settings.get("runtime_class"):
        spec["runtimeClassName"] = settings["runtime_class"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"], "controller": True}
    metadata = {"name": pod_name(node), "labels": {"app": APP}, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def is_expired(pod: Json, now: float) -> bool:
    """Whether a pod that got no GPU, or was rejected, is to be replaced."""
    failed = pod.get("status", {}).get("phase") == "Failed"
    return failed and now - parse_time(pod["metadata"]["creationTimestamp"]) >= RETRY_S


def describe_state(pod: Json) -> str:
    """What the pod waits for, or why it failed."""
    (requested,) = pod["spec"]["containers"][0]["resources"]["limits"]
    status = pod.get("status", {})
    states = [status_.get("state") or {} for status_ in status.get("containerStatuses") or ()]
    if status.get("phase") == "Failed":
        terminated: Json = next(
            (status_["terminated"] for status_ in states if status_.get("terminated")), {}
        )
        reason = (
            terminated.get("message") or status.get("message") or status.get("reason") or "no reason is given"
        )
        return f"a pod that requests {requested} gets no GPU: {reason.strip()}"
    waiting: Json = next((status_["waiting"] for status_ in states if status_.get("waiting")), {})
    reason = waiting.get("message") or waiting.get("reason")
    return start_message(requested) + (f": {reason}" if reason else "")


def start_message(requested: str) -> str:
    """The reason while the pod neither failed nor succeeded."""
    return f"a pod that requests {requested} starts"
