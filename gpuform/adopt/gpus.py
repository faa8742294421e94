"""The GPUs of one node, and how they are shared: by its labels, and by what it offers.

Labels come from NVIDIA's GPU feature discovery (k8s-device-plugin 0.19.0, internal/lm), from GKE
(cloud.google.com, "About GPU sharing strategies in GKE"), from Karpenter, and from a cloud's instance type.
Names of Azure's sizes have the GPU in them (learn.microsoft.com, "Virtual machine sizes naming conventions").
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import InputError
from gpuform.manifests.documents import mapping_at
from gpuform.usage.nodes import Node
from infra.model.base import labels
from infra.model.gpu.machines import BUILT_IN
from infra.model.gpu.mig import Geometry
from infra.model.gpu.models import GKE_GPUS, GPUS, Gpu

_GKE = "cloud.google.com/"
_AZURE = re.compile(r"Standard_N(?P<series>[CDV])\d+\w*?_(?P<gpu>T4|A10|A100|H100|H200|GB200)_v\d+")
_AZURE_GPUS = {
    **{("C", "T4"): "T4", ("C", "A100"): "A100-PCIE-80GB", ("C", "H100"): "H100-NVL"},
    **{
        ("D", "A100"): "A100-SXM4-80GB",
        ("D", "H100"): "H100-SXM",
        ("D", "H200"): "H200",
        ("D", "GB200"): "GB200",
    },
}
"""By series and name of the accelerator. NVadsA10 has parts of a GPU, so it is left out."""
_SHARED, _MIG = "-SHARED", re.compile(r"-MIG-(\d+g\.\d+gb(?:\.me|\.gfx|\.me\.all|-me)?)$")
_REPLICAS, _STRATEGY = "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
_WAYS = {"time-slicing": "time_slicing", "time-sharing": "time_slicing", "mps": "mps"}
Json = Mapping[str, Any]


@dataclass(frozen=True)
class NodeGpus:
    """GPUs of a node: the model's name, how many, and their ``sharing`` as a pool declares it.

    ``own``: the declaration of a model that the catalogue lacks.
    """

    model: str
    count: int
    sharing: Json
    own: Json | None = None


def has_gpus(node: Node) -> bool:
    """Whether anything says that a node has GPUs of NVIDIA."""
    marks = (labels.GPU_PRODUCT, labels.GPU_PRESENT, labels.GKE_ACCELERATOR, labels.INSTANCE_GPU_NAME)
    return bool(any(node.allocatable.values()) or any(node.labels.get(key) for key in marks))


def read_gpus(node: Node, plugin: Json, layout: Sequence[Json]) -> NodeGpus:
    """The GPUs of a node; ``plugin`` and ``layout`` are its device plugin's configuration and MIG layout.

    Raises InputError if a pool cannot declare them.
    """
    gpu, own = _model(node)
    sharing, count = _sharing(node, gpu, plugin, layout)
    return NodeGpus(gpu.name if gpu else _own_name(node), count, sharing, own)


def _product(node: Node) -> str:
    """The product without what sharing appends."""
    return _MIG.sub("", node.labels.get(labels.GPU_PRODUCT, "").removesuffix(_SHARED))


def _model(node: Node) -> tuple[Gpu | None, Json | None]:
    tags = node.labels
    if product := _product(node):
        short = product.removeprefix("NVIDIA-")  # drivers before R470 print the name without it
        for gpu in GPUS.values():
            if gpu.product.removeprefix("NVIDIA-") == short:
                return gpu, None
        return None, _declare(product, tags)
    if name := GKE_GPUS.get(tags.get(labels.GKE_ACCELERATOR, "")):
        return GPUS[name], None
    ec2 = tags.get(labels.INSTANCE_GPU_NAME, ""), tags.get(labels.INSTANCE_GPU_MEMORY, "")
    for gpu in GPUS.values():
        if gpu.ec2 and ec2 == (gpu.ec2[0], str(gpu.ec2[1])):
            return gpu, None
    if (machine := BUILT_IN.machines.get(node.machine)) and machine.model:
        return machine.model, None
    azure = _AZURE.fullmatch(node.machine)
    if azure and (name := _AZURE_GPUS.get((azure["series"], azure["gpu"]))):
        return GPUS[name], None
    fact = "no label says which GPUs it has"
    raise InputError(node.name, fact, "declare its pool by hand, or install GPU feature discovery")


def _declare(product: str, tags: Mapping[str, str]) -> Json:
    """An entry of ``gpus`` for a model that the catalogue lacks; its product has dashes for spaces."""
    major, minor = tags.get("nvidia.com/gpu.compute.major"), tags.get("nvidia.com/gpu.compute.minor")
    memory = tags.get("nvidia.com/gpu.memory", "")
    if not (major and minor and memory.isdecimal()):
        fact = f"the catalogue has no GPU {product}, and its labels lack memory or compute capability"
        raise InputError(product, fact, "declare it under gpus: docs/howto/own-gpus.md")
    return {"product": product, "memory_mib": int(memory), "compute": f"{major}.{minor}"}


def _own_name(node: Node) -> str:
    return _product(node).removeprefix("NVIDIA-")


def _sharing(node: Node, gpu: Gpu | None, plugin: Json, layout: Sequence[Json]) -> tuple[Json, int]:
    """How a node's GPUs are shared, and how many it has."""
    slices = {key: n for key, n in node.allocatable.items() if key.startswith(labels.NVIDIA_MIG_PREFIX) and n}
    single = _MIG.search(node.labels.get(labels.GPU_PRODUCT, "").removesuffix(_SHARED))
    partition = node.labels.get(f"{_GKE}gke-gpu-partition-size", "")
    if slices:
        return _mixed(node, gpu, slices, plugin, layout)
    if single or partition:
        return _single(node, gpu, (single[1] if single else partition), plugin)
    if node.allocatable.get(labels.GPU_DEVICE_CLASS) or node.allocatable.get(labels.MIG_DEVICE_CLASS):
        fact = "its GPUs are allocated by claim (DRA), which gpuform declares only with its own operator"
        raise InputError(node.name, fact, "its pods and claims are counted by `gpuform status`")
    way, replicas = _shares(node)
    count = _count(node, replicas)
    if way == "mps":
        return {"kind": "mps", "replicas": replicas}, count
    if way:
        return {"kind": way, "replicas": replicas, **_renamed(node, plugin, labels.NVIDIA_GPU)}, count
    return {"kind": "exclusive"}, count


def _shares(node: Node) -> tuple[str, int]:
    """Kind of sharing of whole GPUs, and shares of each; empty and 1 if each goes to one pod."""
    way = node.labels.get(_STRATEGY) or node.labels.get(f"{_GKE}gke-gpu-sharing-strategy", "none")
    number = node.labels.get(_REPLICAS) or node.labels.get(f"{_GKE}gke-max-shared-clients-per-gpu", "1")
    replicas = int(number) if number.isdecimal() else 1
    return (_WAYS.get(way, ""), replicas) if replicas > 1 else ("", 1)


def _renamed(node: Node, plugin: Json, resource: str) -> dict[str, bool]:
    """``rename`` and ``fail_requests_greater_than_one``, where they are not gpuform's defaults."""
    settings = mapping_at(plugin, ("sharing", "timeSlicing"))
    renamed = bool(node.allocatable.get(resource + labels.SHARED)) or (
        not node.allocatable.get(resource) and settings.get("renameByDefault") is True
    )
    fails = settings.get("failRequestsGreaterThanOne") is True
    on_gke = labels.GKE_ACCELERATOR in node.labels  # GKE rejects requests for more than one share
    found = {"rename": renamed, "fail_requests_greater_than_one": fails or on_gke}
    return {key: value for key, value in found.items() if not value}


def _count(node: Node, replicas: int) -> int:
    """GPUs of the node: as labelled, of its instance type, or by what it offers."""
    tags = node.labels
    for key in (labels.GPU_COUNT, f"{_GKE}gke-accelerator-count", labels.INSTANCE_GPU_COUNT):
        if tags.get(key, "").isdecimal() and int(tags[key]):
            return int(tags[key])
    offered = sum(node.allocatable.get(key, 0) for key in (labels.NVIDIA_GPU, labels.NVIDIA_GPU_SHARED))
    if offered and offered % replicas == 0:
        return offered // replicas
    if (machine := BUILT_IN.machines.get(node.machine)) and machine.gpus:
        return machine.gpus
    raise InputError(node.name, "nothing says how many GPUs it has", "declare its pool by hand")


def _single(node: Node, gpu: Gpu | None, text: str, plugin: Json) -> tuple[Json, int]:
    """Slices of one profile that are offered as nvidia.com/gpu. Discovery's count is that of slices."""
    geometry = _geometry(node, gpu)
    name = _profile(node, geometry, text)
    most = geometry.max_slices(name)
    number = node.labels.get(f"{_GKE}gke-accelerator-count", "")
    slices = int(number) * most if number.isdecimal() else _count(node, _shares(node)[1])
    if slices % most:
        fact = f"it has {slices} slices {name}, and a GPU has {most}"
        raise InputError(node.name, f"{fact}, so its GPUs differ", "cut them alike: its slices have one name")
    sharing: dict[str, Any] = {"kind": "mig", "layout": {name: most}, "strategy": "single"}
    way, replicas = _shares(node)
    if way == "time_slicing":
        sharing["share"] = {"replicas": replicas, **_renamed(node, plugin, labels.NVIDIA_GPU)}
    return sharing, slices // most


def _mixed(
    node: Node, gpu: Gpu | None, slices: Mapping[str, int], plugin: Json, layout: Sequence[Json]
) -> tuple[Json, int]:
    """Slices as resources of their own; with whole GPUs beside them, only some GPUs are partitioned."""
    resources = {key.removesuffix(labels.SHARED): number for key, number in slices.items()}
    geometry, first = _geometry(node, gpu), next(iter(resources))
    number = node.labels.get(f"{first}.replicas", "1")
    replicas = max(1, int(number) if number.isdecimal() else 1)
    profiles = {
        _profile(node, geometry, key.removeprefix(labels.NVIDIA_MIG_PREFIX)): number // replicas
        for key, number in resources.items()
    }
    count = _count(node, 1)
    declared = _declared_cuts(layout, profiles, count) or _equal_cuts(node, profiles, count)
    sharing: dict[str, Any] = {"kind": "mig", **declared, "strategy": "mixed"}
    if replicas > 1:
        sharing["share"] = {"replicas": replicas, **_renamed(node, plugin, first)}
    return sharing, count


def _declared_cuts(layout: Sequence[Json], profiles: Mapping[str, int], count: int) -> Json:
    """Keys of the sharing by the MIG manager's layout; none if it names no GPUs, or the node differs."""
    gpus: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for entry in layout:
        devices, slices = entry.get("devices"), mapping_at(entry, ("mig-devices",))
        if entry.get("mig-enabled") and isinstance(devices, list):
            if not all(isinstance(number, int) for number in (*devices, *slices.values())):
                return {}
            gpus.setdefault(tuple(sorted(slices.items())), []).extend(devices)
    found: Counter[str] = Counter()
    for cut, devices in gpus.items():
        for name, number in cut:
            found[name] += len(devices) * number
    if found != Counter(profiles):
        return {}
    layouts = [{"devices": sorted(devices), "layout": dict(cut)} for cut, devices in gpus.items()]
    if len(layouts) > 1:
        return {"layouts": layouts}
    return layouts[0] if len(layouts[0]["devices"]) < count else {"layout": layouts[0]["layout"]}


def _equal_cuts(node: Node, profiles: Mapping[str, int], count: int) -> Json:
    """The same of what the node offers: one layout, of the last GPUs if there are whole ones."""
    cut = count - node.allocatable.get(labels.NVIDIA_GPU, 0)
    if cut < 1 or any(number % cut for number in profiles.values()):
        kinds = ", ".join(f"{number} {name}" for name, number in profiles.items())
        fact = f"its {count} GPUs have different layouts ({kinds}), which its MIG manager's configuration"
        raise InputError(node.name, f"{fact} does not name", "declare the pool by hand: sharing.layouts")
    found: Json = {"layout": {name: number // cut for name, number in sorted(profiles.items())}}
    return found if cut == count else {**found, "devices": list(range(count - cut, count))}


def _geometry(node: Node, gpu: Gpu | None) -> Geometry:
    if gpu and gpu.geometry:
        return gpu.geometry
    fact = f"the catalogue has no MIG profiles of {gpu.name if gpu else _product(node)}"
    raise InputError(node.name, fact, "declare the GPU under gpus: docs/howto/own-gpus.md")


def _profile(node: Node, geometry: Geometry, text: str) -> str:
    """The profile's name in the catalogue: a resource name has a dot for its plus."""
    for profile in geometry.profiles:
        if text in (profile.name, profile.name.replace("+", ".")):
            return profile.name
    fact = f"its GPUs have no MIG profile {text} in the catalogue"
    raise InputError(node.name, fact, "declare the GPU under gpus: docs/howto/own-gpus.md")
