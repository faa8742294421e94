"""The load that pods put on their devices: a model with declared figures.

The pod's annotation ``simulator.gpuform.io/gpu-load`` sets it, and may change while the pod runs: a number
from 0 to 1, ``idle`` (0), or ``sine`` (between 0.1 and 0.9, ten minutes from peak to peak, each pod with its
own phase). Without a valid annotation the kind of the pod's owner decides:

- a Job trains: 0.9;
- a ReplicaSet serves: ``sine``;
- a StatefulSet is a notebook left open: 0.05;
- any other pod, and devices allocated by claim (their pods are not read): 0.5.

Loads of pods that share a GPU or a MIG instance by time-slicing or MPS add up, to 1 at most.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from lab.simulator import device_plugin
from lab.simulator.objects import Pod
from lab.simulator.parts import original
from lab.simulator.world import World

PERIOD = 600.0
"""Seconds from peak to peak of ``sine``."""
BY_OWNER = {"Job": "0.9", "ReplicaSet": "sine", "StatefulSet": "0.05"}
OTHERWISE = 0.5


@dataclass(slots=True)
class Use:
    """Use of one device: load (0 to 1), MiB that processes hold, and its only holder.

    ``pod`` is (namespace, name, container); None if the device is free or shared, as dcgm-exporter does not
    know the holder of a shared device. ``peers``: number of the holder's devices, this one included.
    """

    busy: float = 0.0
    held: int = 0
    pod: tuple[str, str, str] | None = None
    peers: int = 1


@dataclass(slots=True)
class Uses:
    """Use by device id; a device that is missing is idle."""

    by_id: dict[str, Use] = field(default_factory=dict)

    def of(self, device: str) -> Use:
        return self.by_id.get(device) or Use()


def uses(world: World, moment: float) -> Uses:
    """Use of the node's devices at ``moment``; a pod that is down or not admitted uses none."""
    found: dict[str, Use] = {}
    for pod in world.consumers:
        if pod.devices and pod.phase == "Running" and not pod.crash:
            _count(found, pod, of_pod(pod, moment))
    for device in _claimed(world):
        use = found.setdefault(device, Use())
        use.busy = min(1.0, use.busy + OTHERWISE)
    return Uses(found)


def _count(found: dict[str, Use], pod: Pod, busy: float) -> None:
    devices = pod.devices.split(",")
    held = int(pod.held) if pod.held.isdecimal() else 0
    for device in devices:
        use = found.setdefault(original(device), Use())
        use.busy, use.held = min(1.0, use.busy + busy), use.held + held
        if "::" not in device:
            use.pod, use.peers = (pod.namespace, pod.name, _container(pod)), len(devices)


def of_pod(pod: Pod, moment: float) -> float:
    said = _number(pod.load, pod.uid, moment)
    if said is None:
        said = _number(BY_OWNER.get(pod.owner[0], ""), pod.uid, moment)
    return OTHERWISE if said is None else said


def _number(word: str, uid: str, moment: float) -> float | None:
    if word == "idle":
        return 0.0
    if word == "sine":
        phase = zlib.crc32(uid.encode()) / 2**32
        return 0.5 + 0.4 * math.sin(2 * math.pi * (moment / PERIOD + phase))
    try:
        value = float(word)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _container(pod: Pod) -> str:
    names = [name for name, init, _ in pod.requests if not init]
    return names[0] if names else pod.requests[0][0]


def _claimed(world: World) -> Iterable[str]:
    names: Mapping[str, str] | None = None
    for claim in world.claims:
        if not claim.pods:
            continue
        names = names or _names(world)
        yield from (names[device] for device in claim.devices if device in names)


def _names(world: World) -> dict[str, str]:
    """Device ids by the DRA driver's names: ``gpu-0``, ``gpu-0-mig-1g5gb-19-3`` (3 is the start)."""
    found = {f"gpu-{n}": device_plugin.gpu_uuid(world, n) for n in range(world.gpus)}
    for index, placed in world.layout.items():
        ours = {f"gpu-{index}-mig-{start}": (profile, start) for profile, start in placed}
        for claim in world.claims:
            for device in claim.devices:
                head, _, rest = device.partition("-mig-")
                spot = ours.get(f"{head}-mig-{rest.rpartition('-')[2]}") if rest else None
                if spot:
                    found[device] = device_plugin.mig_uuid(world, index, *spot)
    return found
