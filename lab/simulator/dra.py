"""NVIDIA's DRA driver: publishes the node's claimable devices as one ResourceSlice.

Names, attributes and capacities are those of the driver's release 0.5 (github.com/kubernetes-sigs/
dra-driver-nvidia-gpu, cmd/gpu-kubelet-plugin: deviceinfo.go, mig.go, device_health.go) with its default
feature gates: a GPU is either whole or the MIG instances that it had when the driver started. Facts that only
NVML knows (PCI addresses, NUMA nodes, engines of an instance) are left out rather than made up.

An unhealthy GPU stays in the slice and claimable: the driver checks health only behind an alpha gate
(NVMLDeviceHealthCheck). With the gate the device gets a taint, which an older API server than that of
Kubernetes 1.36 drops unless its own alpha gate (DRADeviceTaints) is set.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from lab.simulator import device_plugin, driver, keys
from lab.simulator.actions import Action, Publish, Withdraw
from lab.simulator.hardware import Gpu
from lab.simulator.mig_geometry import Placed
from lab.simulator.objects import Node, Pod
from lab.simulator.world import Config, World, parse_layout

OPERAND = keys.DRA_OPERAND
DRIVER = keys.DRA_DRIVER
LOST_TAINT = {"key": f"{DRIVER}/gpu-lost", "effect": "NoSchedule"}
"""Taint of a lost device; used here for every unhealthy GPU, as no XID gives the cause."""
SLICE_GRACE_S = 30.0
"""Seconds after which the kubelet deletes the slices of a driver that is gone (Kubernetes 1.36)."""

_ARCHITECTURES = {"ada-lovelace": "Ada Lovelace"}
"""go-nvlib's names that are not the capitalized family."""
_PROFILES = {
    7: {(1, 1): 19, (1, 2): 15, (2, 2): 14, (3, 4): 9, (4, 4): 5, (7, 8): 0},
    4: {(1, 1): 14, (2, 2): 5, (4, 4): 0},
}
"""GPU instance profile ids (nvidia-smi mig -lgip, NVIDIA's MIG user guide): by the GPU's compute slices, then
by the profile's compute and memory slices; ``_SUFFIXED`` has the known ids of profiles with a suffix."""
_ASSUMED = 100  # first id of profiles without a published id
_SUFFIXED = {
    (7, 1, "+me"): 20,
    (4, 1, "+me"): 21,
    (4, 2, "+me"): 6,
    (4, 1, "+gfx"): 47,
    (4, 2, "+gfx"): 35,
    (4, 4, "+gfx"): 32,
    (4, 1, "+me.all"): 65,
    (4, 2, "+me.all"): 64,
    (4, 1, "-me"): 67,
    (4, 2, "-me"): 66,
}

Json = dict[str, Any]


def discovered_layout(node: Node, pod: Pod) -> Config:
    """MIG layout when the driver's pod started; the driver does not see later changes."""
    if pod.loaded:
        return Config.parse(pod.loaded)
    return Config("", data={"mig": node.annotations.get(keys.MIG_LAYOUT, "{}")})


def act(world: World) -> list[Action]:
    """Publish a changed slice; withdraw it ``SLICE_GRACE_S`` seconds after the driver has gone."""
    config, version, old = world.config(OPERAND), driver.version(world), world.published
    if config is None or world.gpu is None or version is None:
        return [Withdraw(old.name)] if old and keys.DRA_DRIVER in world.expired else []
    tainted = [_with_taint(world, device) for device in devices(world, world.gpu, config, version)]
    digest = hashlib.sha256(json.dumps(tainted, sort_keys=True).encode()).hexdigest()[:16]
    if old and old.digest == digest:
        return []
    return [Publish(resource_slice(world.node, tainted, digest, old.generation + 1 if old else 1), bool(old))]


def resource_slice(node: Node, tainted: list[Json], digest: str, generation: int) -> Json:
    """The node's slice, deleted with the node; ``digest`` is of what is sent, as a server may drop fields."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid, "controller": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": f"{node.name}-{DRIVER}",
            "annotations": {keys.PUBLISHED: digest},
            "ownerReferences": [owner],
        },
        "spec": {
            "driver": DRIVER,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": generation, "resourceSliceCount": 1},
            "devices": tainted,
        },
    }


def devices(world: World, gpu: Gpu, config: Config, version: str) -> Iterator[Json]:
    """The node's devices, in the order in which the scheduler takes them."""
    layout = parse_layout(config.data["mig"])
    for index in range(world.gpus):
        uuid = device_plugin.gpu_uuid(world, index)
        if index not in layout:
            capacity = {"memory": {"value": _quantity(gpu.memory_mib)}}
            attributes = _attributes(gpu, version, type="gpu", uuid=uuid)
            yield {"name": f"gpu-{index}", "attributes": attributes, "capacity": capacity}
        for placed in layout.get(index, ()):
            yield _instance(world, gpu, version, index, placed)


def _with_taint(world: World, device: Json) -> Json:
    is_tainted = device["attributes"]["uuid"]["string"] in device_plugin.tainted_devices(world)
    return {**device, "taints": [dict(LOST_TAINT)]} if is_tainted else device


def _instance(world: World, gpu: Gpu, version: str, index: int, placed: Placed) -> Json:
    assert gpu.mig is not None
    profile, start = placed
    shape = gpu.mig.profiles[profile]
    capacity: Json = {f"memorySlice{n}": {"value": "1"} for n in range(start, start + shape.memory_slices)}
    if shape.multiprocessors:
        capacity["multiprocessors"] = {"value": str(shape.multiprocessors)}
    if shape.memory_mib:
        capacity["memory"] = {"value": _quantity(shape.memory_mib)}
    attributes = _attributes(
        gpu,
        version,
        type="mig",
        profile=profile,
        uuid=device_plugin.mig_uuid(world, index, profile, start),
        parentUUID=device_plugin.gpu_uuid(world, index),
    )
    number = profile_id(gpu, profile)
    name = re.sub(r"[^a-z0-9-]", "-", profile.replace(".", ""))
    return {
        "name": f"gpu-{index}-mig-{name}-{number}-{start}",
        "attributes": attributes,
        "capacity": capacity,
    }


def profile_id(gpu: Gpu, profile: str) -> int:
    assert gpu.mig is not None
    shape, suffix = gpu.mig.profiles[profile], profile[len(profile.split("gb")[0]) + 2 :]
    assumed = _ASSUMED + sorted(gpu.mig.profiles).index(profile)
    if suffix:
        return _SUFFIXED.get((gpu.mig.compute, shape.compute, suffix), assumed)
    return _PROFILES.get(gpu.mig.compute, {}).get((shape.compute, shape.memory_slices), assumed)


def _attributes(gpu: Gpu, version: str, **texts: str) -> Json:
    major, minor = gpu.compute
    attributes = {
        "architecture": _ARCHITECTURES.get(gpu.family, gpu.family.capitalize()),
        "brand": "Tesla" if gpu.product.startswith("Tesla") else "Nvidia",
        "productName": gpu.product,
        **texts,
    }
    versions = {
        "cudaComputeCapability": f"{major}.{minor}.0",
        "cudaDriverVersion": _to_semver(driver.cuda_version(version)),
        "driverVersion": _to_semver(version),
    }
    return {key: {"string": text} for key, text in attributes.items()} | {
        key: {"version": text} for key, text in versions.items()
    }


def _to_semver(text: str) -> str:
    numbers = [str(int(part)) for part in text.split(".")]
    return ".".join([*numbers, "0", "0"][:3])


def _quantity(mib: int) -> str:
    return f"{mib // 1024}Gi" if mib % 1024 == 0 else f"{mib}Mi"
