"""The rows of an exporter, with labels and values: one per GPU, or per MIG instance if the GPU has any.

A GPU with MIG on but without instances has one row, as with the real exporter in its flexible mode. A lost
GPU has a row only for its XIDs, and no row for an exporter that was started afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from lab.simulator import device_plugin, driver, faults
from lab.simulator.dcgm import device, figures
from lab.simulator.dcgm.fields import XID
from lab.simulator.dcgm.load import Use, Uses, uses
from lab.simulator.dcgm.watch import NodeWatch, broken, hear, last_xid, look
from lab.simulator.hardware import Gpu, Mig
from lab.simulator.mig_geometry import Placed
from lab.simulator.parts import Part, parts
from lab.simulator.world import World


@dataclass(slots=True)
class Row:
    """``labels`` identify the device, ``pod`` its holder; ``xids`` are those of the window."""

    labels: dict[str, str]
    pod: dict[str, str]
    values: Mapping[str, float]
    xid: tuple[int, str]
    xids: Counter[int]
    broken: device.Broken
    idle: bool
    instance: bool = False


def rows(world: World, watch: NodeWatch, moment: float) -> Iterator[Row]:
    """Every row of the node; advances ``watch`` to ``moment``."""
    gpu = world.gpu
    if gpu is None:
        return
    made = figures.of(world.device, gpu)
    used, found, all_faults = uses(world, moment), parts(world), faults.of(world.node)
    layout = world.layout
    for index, watched in enumerate(watch.gpus[: world.gpus]):
        ours = broken(all_faults, index)
        placed = layout.get(index, ())
        busy, link = _busy(world, index, placed, used)
        kinds = look(watched, made, (busy, link), ours, moment)
        xids = hear(watched, ours, watch.since, moment)
        lost = kinds.get(faults.GPU_LOST)
        if lost and lost.since < watch.since:
            continue
        common = device.whole(watched.state, made, busy, kinds, gpu.compute >= (8, 0))
        base = _labels(world, gpu, index)
        for labels, id_, instance in _entities(world, index, placed, base):
            use = used.of(id_)
            values = {} if lost else _values(common, use, found[id_], instance)
            yield Row(labels, _pod(use), values, last_xid(watched), xids, kinds, busy < 0.01, instance)


def _values(common: dict[str, float], use: Use, part: Part, instance: bool) -> dict[str, float]:
    own = device.busy_values(use.busy, instance) | device.memory_values(part.memory_mib, use.held)
    return common | own


def _busy(world: World, index: int, placed: tuple[Placed, ...], used: Uses) -> tuple[float, float]:
    """Load of the whole GPU, and used share of its NVLinks: a quarter of it if the pod has several GPUs."""
    use = used.of(device_plugin.gpu_uuid(world, index))
    if not placed:
        return use.busy, 0.25 * use.busy if use.peers > 1 else 0.0
    assert world.gpu is not None
    assert world.gpu.mig is not None
    mig = world.gpu.mig
    ids = ((name, device_plugin.mig_uuid(world, index, name, start)) for name, start in placed)
    total = sum(used.of(id_).busy * mig.profiles[name].compute for name, id_ in ids)
    return min(1.0, total / mig.compute), 0.0


def _entities(
    world: World, index: int, placed: tuple[Placed, ...], base: dict[str, str]
) -> Iterator[tuple[dict[str, str], str, bool]]:
    """Labels, device id, and whether it is a MIG instance, for each row of one GPU."""
    if not placed:
        yield base, device_plugin.gpu_uuid(world, index), False
        return
    assert world.gpu is not None
    assert world.gpu.mig is not None
    for profile, start in placed:
        number = instance_id(world.gpu.mig, profile, start)
        labels = base | {"GPU_I_PROFILE": profile, "GPU_I_ID": str(number)}
        yield labels, device_plugin.mig_uuid(world, index, profile, start), True


def instance_id(mig: Mig, profile: str, start: int) -> int:
    """The driver's id of a GPU instance: its place in the tree of halves, from the whole GPU (A100, A30)."""
    size = mig.profiles[profile].memory_slices
    return mig.slices // size - 1 + start // size


def _labels(world: World, gpu: Gpu, index: int) -> dict[str, str]:
    return {
        "gpu": str(index),
        "UUID": device_plugin.gpu_uuid(world, index),
        "pci_bus_id": f"00000000:{16 * (index + 1) - 9:02X}:00.0",
        "device": f"nvidia{index}",
        "modelName": gpu.product,
        "Hostname": world.node.name,
    }


def _pod(use: Use) -> dict[str, str]:
    if use.pod is None:
        return {}
    namespace, name, container = use.pod
    return {"container": container, "namespace": namespace, "pod": name}


def static(world: World, names: list[str]) -> dict[str, str]:
    """Values of the csv's ``label`` fields; what NVML alone knows is left out rather than made up."""
    version = driver.version(world) or ""
    known = {"DCGM_FI_DRIVER_VERSION": version, "DCGM_FI_DEV_BRAND": "Nvidia"}
    return {name: known[name] for name in sorted(names) if known.get(name)}


def value(row: Row, name: str) -> float | None:
    return row.xid[0] if name == XID else row.values.get(name)
