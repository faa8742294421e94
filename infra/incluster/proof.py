"""What a GPU node must prove, and the patch that lifts its startup taint; asks no server.

Part of the ConfigMaps of the readiness gate and the health loop. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import json
from typing import Any

TAINT = "gpuform.io/gpu-not-ready"
POOL = "gpuform.io/pool"
OFFERS = "gpuform.io/offers"
PER_GPU = "gpuform.io/offers-per-gpu"
GPUS = "karpenter.k8s.aws/instance-gpu-count"
DISCOVERED_GPUS = "nvidia.com/gpu.count"
READY = "gpuform.io/gpu-ready"
WAITS_FOR = "gpuform.io/gpu-waits-for"
DRIVER_OF_CLAIMS = "gpu.nvidia.com"
RESOURCE = "nvidia.com/"  # prefix of extended resources; device classes end in it
MIG_CONFIG = "nvidia.com/mig.config"
MIG_STATE = "nvidia.com/mig.config.state"
DRIVER = "nvidia.com/cuda.driver-version.full"
CUDA = "nvidia.com/cuda.runtime-version.full"

Json = dict[str, Any]


def startup_taints(node: Json) -> list[tuple[int, Json]]:
    """Our taints on the node with their index among all taints, last first."""
    indexed = list(enumerate(node["spec"].get("taints") or ()))
    return [(index, taint) for index, taint in reversed(indexed) if taint["key"] == TAINT]


def amount(quantity: str) -> int:
    """An extended resource's quantity; the API server writes whole thousands as 1k."""
    return int(quantity[:-1]) * 1000 if quantity.endswith("k") else int(quantity)


def promised_resources(node: Json, pool: Json) -> dict[str, int]:
    """What the node must offer; empty if it is unreadable, or the node's number of GPUs is unknown."""
    meta = node["metadata"]
    annotations = meta.get("annotations") or {}
    try:
        if PER_GPU in annotations:
            amounts, gpus = json.loads(annotations[PER_GPU]), int(meta["labels"][GPUS])
        else:
            amounts, gpus = json.loads(annotations[OFFERS]) if OFFERS in annotations else pool["offers"], 1
            if any(isinstance(item, dict) for item in amounts.values()):  # by the node's number of GPUs
                amounts = amounts[meta["labels"][DISCOVERED_GPUS]]
        return {name: int(count) * gpus for name, count in amounts.items()} if gpus > 0 else {}
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return {}


def promises_claims(node: Json, pool: Json | None) -> bool:
    """Whether the node promises a device class: its devices are allocated by claim (DRA)."""
    return any(not name.startswith(RESOURCE) for name in promised_resources(node, pool or {}))


def count_devices(slices: list[Json]) -> dict[str, int]:
    """Number of devices of one node by device class: whole GPUs, and MIG slices; newest generation only.

    Other drivers have ResourceSlices of the node, too, mostly with the same pool name: the node's.
    """
    specs = [item["spec"] for item in slices if item["spec"]["driver"] == DRIVER_OF_CLAIMS]
    newest: dict[str, int] = {}
    for spec in specs:
        pool = spec["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    counts: dict[str, int] = {}
    for spec in specs:
        if spec["pool"]["generation"] == newest[spec["pool"]["name"]]:
            for device in spec.get("devices") or ():
                kind = device.get("attributes", {}).get("type", {}).get("string", "gpu")
                name = f"{kind}.{RESOURCE.rstrip('/')}"
                counts[name] = counts.get(name, 0) + 1
    return counts


def unmet_conditions(node: Json, pods: list[Json], pool: Json | None, devices: dict[str, int]) -> list[str]:
    """What keeps the node from being used, in words; empty if it is as its pool promises.

    ``devices`` has its devices by device class.
    """
    labels, required = node["metadata"].get("labels") or {}, promised_resources(node, pool or {})
    if pool is None:
        return [f"its pool {labels.get(POOL)} is not declared"]
    if not required:
        per_gpu = PER_GPU in (node["metadata"].get("annotations") or {})
        source = f"label {DISCOVERED_GPUS}" if pool.get("offers") else f"annotation {OFFERS}"
        source = f"annotation {PER_GPU} with label {GPUS}" if per_gpu else source
        return [f"{source} does not say what its pool promises"]
    reasons = [f"label {key} is missing" for key in pool["labels"] if not labels.get(key)]
    allocatable = node.get("status", {}).get("allocatable") or {}
    offered = {
        **devices,
        **{name: amount(quantity) for name, quantity in allocatable.items() if name in required},
    }
    for name, count in required.items():
        if offered.get(name, 0) < count:
            reasons.append(f"it offers {offered.get(name, 0)} of {count} {name}")
    if MIG_CONFIG in labels and labels.get(MIG_STATE) != "success":
        reasons.append(f"MIG layout {labels[MIG_CONFIG]} is {labels.get(MIG_STATE) or 'not started'}")
    return [*reasons, *_unready_operands(node, pods, pool["operands"])]


def _unready_operands(node: Json, pods: list[Json], operands: list[str]) -> list[str]:
    reasons = []
    for operand in operands:
        running = operand_pods(operand, node, pods)
        if not running:
            reasons.append(f"{operand} has no pod")
        reasons += [f"{pod['metadata']['name']} is not ready" for pod in running if not is_ready(pod)]
    return reasons


def operand_pods(operand: str, node: Json, pods: list[Json]) -> list[Json]:
    """The operand's pods; one older than the node ran on an earlier node of that name, and does not count."""
    created = node["metadata"]["creationTimestamp"]
    matching = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == operand]
    return [pod for pod in matching if pod["metadata"]["creationTimestamp"] >= created]


def is_ready(pod: Json) -> bool:
    """Whether the pod has succeeded, or is running and Ready."""
    status = pod.get("status", {})
    if "deletionTimestamp" in pod["metadata"]:
        return False
    if status.get("phase") == "Succeeded":
        return True
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    return status.get("phase") == "Running" and conditions.get("Ready") == "True"


def evidence(node: Json, pods: list[Json], pool: Json, at: str) -> str:
    """Value of the node's annotation: what was verified, and when."""
    labels = node["metadata"].get("labels", {})
    facts = {
        "at": at,
        "cuda": labels.get(CUDA, "unknown"),
        "driver": labels.get(DRIVER, "unknown"),
        "kubelet": node["status"]["nodeInfo"]["kubeletVersion"],
        "offers": promised_resources(node, pool),
        "operands": {operand: _image(operand_pods(operand, node, pods)[0]) for operand in pool["operands"]},
    }
    return json.dumps(facts, sort_keys=True)


def _image(pod: Json) -> str:
    """Name and tag of the pod's first image, without the registry."""
    return str(pod["spec"]["containers"][0]["image"]).rpartition("/")[2]


def lift_patch(node: Json, proof_text: str) -> list[Json]:
    """JSON patch that removes each of our taints, if its index is unchanged, and writes the evidence."""
    annotations = node["metadata"].get("annotations")
    operations: list[Json] = []
    for index, taint in startup_taints(node):
        path = f"/spec/taints/{index}"
        operations += [{"op": "test", "path": path, "value": taint}, {"op": "remove", "path": path}]
    if annotations is None:  # the test passes if the path is missing
        path = "/metadata/annotations"
        operations += [{"op": "test", "path": path, "value": None}, {"op": "add", "path": path, "value": {}}]
    if WAITS_FOR in (annotations or {}):
        operations.append({"op": "remove", "path": _annotation(WAITS_FOR)})
    return [*operations, {"op": "add", "path": _annotation(READY), "value": proof_text}]


def _annotation(key: str) -> str:
    return "/metadata/annotations/" + key.replace("~", "~0").replace("/", "~1")
