"""Feature discovery: what the PCI bus has (NFD), what the node's GPUs are and how they are shared (GFD)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime

from lab.simulator import device_plugin, driver, keys
from lab.simulator.actions import Action, NodeMeta, PublishFeature
from lab.simulator.features import Feature
from lab.simulator.hardware import Gpu, Profile
from lab.simulator.mig_geometry import count_profiles
from lab.simulator.objects import Pod
from lab.simulator.world import Config, World

OS_RELEASE = {
    "feature.node.kubernetes.io/kernel-version.full": "6.8.0-85-generic",
    "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
    "feature.node.kubernetes.io/system-os_release.VERSION_ID": "24.04",
}
_OWNED = re.compile(
    r"nvidia\.com/(cuda\.|gfd\.|vgpu\.|mig-|mig\.(capable|strategy)$|mps\.capable$"
    r"|gpu\.(compute|count|family|machine|memory|mode|product|replicas|sharing-strategy|multiprocessors|slices|engines))"
)


def features(world: World) -> list[Action]:
    """The node's feature labels; removed when NFD is uninstalled, kept while its pods are down."""
    desired = dict(OS_RELEASE)
    if keys.GPU_ID in world.node.annotations:
        desired[keys.PCI_PRESENT] = "true"
    if keys.RDMA_OFFERED in world.node.annotations:
        desired[keys.NIC_PRESENT] = "true"
    if not world.cluster.nfd_installed:
        if not OS_RELEASE.keys() & world.node.labels.keys():
            return []  # NFD never ran here: the labels are the node's own
        desired = {}
    worker = world.running("nfd-worker")
    if world.cluster.is_real:
        return _publish(world, worker, world.node.name, desired) if worker else []
    if world.cluster.nfd_installed and not (world.cluster.nfd_running and worker):
        return []
    return label_changes("nfd", world, desired, {*OS_RELEASE, keys.PCI_PRESENT, keys.NIC_PRESENT})


def _publish(world: World, pod: Pod, name: str, labels: dict[str, str]) -> list[Action]:
    """Publish the labels as a NodeFeature object, for nfd-master."""
    if world.features.get((pod.namespace, name)) == labels:
        return []
    return [PublishFeature(Feature(pod, name, labels))]


def label_changes(component: str, world: World, desired: dict[str, str], owned: set[str]) -> list[Action]:
    """Changes from the node's labels to ``desired``; owned labels that are not desired are removed."""
    labels = world.node.labels
    changes: dict[str, str | None] = {k: v for k, v in desired.items() if labels.get(k) != v}
    changes.update(dict.fromkeys(sorted((owned & labels.keys()) - desired.keys())))
    return [NodeMeta(component, changes)] if changes else []


def owned_labels(labels: Mapping[str, str]) -> set[str]:
    return {key for key in labels if _OWNED.match(key)}


def act(world: World) -> list[Action]:
    """GFD's labels, published through NFD; kept while its pod is down."""
    pod, config, gpu = world.running("gfd"), world.config("gfd"), world.gpu
    version = driver.version(world)
    if not (pod and config and gpu and version):
        return []
    desired = labels(world, gpu, config, pod, version)
    if world.cluster.is_real:
        return _publish(world, pod, f"nvidia-features-for-{world.node.name}", desired)
    if not world.cluster.nfd_running:
        return []
    return label_changes("gfd", world, desired, owned_labels(world.node.labels))


def labels(world: World, gpu: Gpu, config: Config, pod: Pod, version: str) -> dict[str, str]:
    mode = device_plugin.strategy(config, pod)
    node = world.node
    machine = node.annotations.get(keys.DMI_PRODUCT) or node.labels.get(keys.INSTANCE_TYPE, "unknown")
    values = _versions(version) | {
        "gfd.timestamp": str(int(datetime.fromisoformat(pod.created).timestamp())),
        "gpu.machine": _sanitised(machine),
        "gpu.mode": "compute",
        "mig.capable": str(gpu.mig is not None).lower(),
        "mps.capable": str(config.strategy == "mps").lower(),
        "vgpu.present": "false",
    }
    # With MIG on every GPU, the labels of whole GPUs show 0 replicas and no sharing.
    full = _sharing(config, keys.GPU) if len(world.layout) < world.gpus else (0, "none", False)
    values |= _resource("gpu", (gpu.product,), world.gpus, full) | {
        "gpu.memory": str(gpu.memory_mib),
        "gpu.family": gpu.family,
        "gpu.compute.major": str(gpu.compute[0]),
        "gpu.compute.minor": str(gpu.compute[1]),
    }
    if mode != "none":
        values["mig.strategy"] = mode
        values |= _single(world, gpu, config) if mode == "single" else _mixed(world, gpu, config)
    return {f"{keys.VENDOR}{key}": value for key, value in values.items()}


def exit_message(world: World, pod: Pod, config: Config) -> str | None:
    """Why GFD exits; None when it runs. The labels that it has written stay."""
    if pod.start != "granted" and driver.version(world) is None:
        return device_plugin.NO_DRIVER
    if config.strategy == "mps" and world.layout:
        return (
            "error creating labeler: error creating sharing labeler: failed to check MPS-capable: "
            "MPS sharing is not supported for mig devices"
        )
    return None


def _versions(version: str) -> dict[str, str]:
    major, minor, revision, *_ = [*version.split("."), "", ""]
    runtime = driver.cuda_version(version)
    cuda_major, _, cuda_minor = runtime.partition(".")
    return {
        "cuda.driver.major": major,
        "cuda.driver.minor": minor,
        "cuda.driver.rev": revision,
        "cuda.driver-version.major": major,
        "cuda.driver-version.minor": minor,
        "cuda.driver-version.revision": revision,
        "cuda.driver-version.full": version,
        "cuda.runtime.major": cuda_major,
        "cuda.runtime.minor": cuda_minor,
        "cuda.runtime-version.major": cuda_major,
        "cuda.runtime-version.minor": cuda_minor,
        "cuda.runtime-version.full": runtime,
    }


def _sharing(config: Config, resource: str) -> tuple[int, str, bool]:
    """Replicas, sharing strategy, and whether the product label ends with ``-SHARED``."""
    for entry in device_plugin.shared_resources(config):
        if entry["name"] == resource:
            return entry["replicas"], config.strategy, not entry.get("rename")
    return 1, "none", False


def _resource(
    prefix: str, parts: tuple[str, ...], count: int, share: tuple[int, str, bool]
) -> dict[str, str]:
    replicas, sharing, says_so = share
    return {
        f"{prefix}.product": "-".join([*map(_sanitised, parts), *(["SHARED"] if says_so else [])]),
        f"{prefix}.count": str(count),
        f"{prefix}.replicas": str(replicas),
        f"{prefix}.sharing-strategy": sharing,
    }


def _mixed(world: World, gpu: Gpu, config: Config) -> dict[str, str]:
    values: dict[str, str] = {}
    for profile, count in sorted(_instances(world).items()):
        # Neither a label's key nor a resource's name can hold "+".
        prefix = f"mig-{profile.replace('+', '.')}"
        values |= _slice(prefix, gpu, profile, count, _sharing(config, f"{keys.VENDOR}{prefix}"))
    return values


def _single(world: World, gpu: Gpu, config: Config) -> dict[str, str]:
    layout, counts = world.layout, _instances(world)
    if not layout:
        return {}
    if len(layout) < world.gpus or not all(layout.values()) or len(counts) != 1:
        invalid = _resource("gpu", (gpu.product, "MIG", "INVALID"), 0, (0, "", False))
        return invalid | {"gpu.memory": "0"}
    ((profile, count),) = counts.items()
    return _slice("gpu", gpu, profile, count, _sharing(config, keys.GPU))


def _instances(world: World) -> Counter[str]:
    return sum(map(count_profiles, world.layout.values()), Counter())


def _slice(prefix: str, gpu: Gpu, profile: str, count: int, share: tuple[int, str, bool]) -> dict[str, str]:
    assert gpu.mig is not None
    shape: Profile = gpu.mig.profiles[profile]
    # GFD writes the profile as in the resource name: "." for "+".
    values = _resource(prefix, (gpu.product, "MIG", profile.replace("+", ".")), count, share)
    values |= {f"{prefix}.slices.gi": str(shape.compute), f"{prefix}.slices.ci": str(shape.compute)}
    if shape.multiprocessors:
        values[f"{prefix}.multiprocessors"] = str(shape.multiprocessors)
    if shape.memory_mib:
        values[f"{prefix}.memory"] = str(shape.memory_mib)
    return values


def _sanitised(text: str) -> str:
    return "-".join(re.sub(r"[^A-Za-z0-9-_. ]", "", text).split())
