"""The load that pods put on their devices: a model with declared figures.

The pod's annotation ``simulator.gpuform.io/gpu-load`` sets it, and may change while the pod runs: a number
from 0 to 1, ``idle`` (0), or ``sine`` (between 0.1 and 0.9, ten minutes from peak to peak, each pod with its
own phase). Without a valid annotation the kind of the pod's owner decides:

- a Job trains: 0.9;
- a ReplicaSet serves: ``sine``;
- a StatefulSet is a notebook left open: 0.05;
- any other pod, and devices allocated by claim (their pods are not read): 0.5.

Loads of pods that share a GPU or a MIG instance by time-slicing or MPS add up, to 1 at most.

A pod with a load that declares no memory (``lab.simulator.memory``) holds ``HELD_SHARE`` of its device, or of
its replica if the device is shared. This is an assumption, and only the metrics use it.
"""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from lab.simulator.device_plugin import gpu_uuid, mig_uuid, original_id, partitions
from lab.simulator.objects import Pod
from lab.simulator.world import World

PERIOD = 600.0
"""Seconds from peak to peak of ``sine``."""
BY_OWNER = {"Job": "0.9", "ReplicaSet": "sine", "StatefulSet": "0.05"}
DEFAULT_LOAD = 0.5
HELD_SHARE = 0.6


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


def usage_by_device(world: World, moment: float) -> defaultdict[str, Use]:
    """Use at ``moment`` by device id; a pod that is down or not admitted uses none."""
    usage: defaultdict[str, Use] = defaultdict(Use)
    sizes = {device: int(HELD_SHARE * part.memory_mib) for device, part in partitions(world).items()}
    labels = (text for label, text in world.node.labels.items() if label.endswith(".replicas"))
    replicas = max([1, *map(int, filter(str.isdecimal, labels))])  # by GPU feature discovery
    for pod in world.consumers:
        if not pod.devices or pod.phase != "Running" or pod.crash:
            continue
        busy, held_mib, devices = load_of(pod, moment), pod.held, pod.devices.split(",")
        for device in devices:
            use = usage[original_id(device)]
            use.busy = min(1.0, use.busy + busy)
            use.held += int(held_mib) if held_mib.isdecimal() else 0
            if busy and not (held_mib or pod.memory):
                use.held += sizes.get(original_id(device), 0) // (replicas if "::" in device else 1)
            if "::" not in device:
                use.pod, use.peers = (pod.namespace, pod.name, _container(pod)), len(devices)
    for device in _claimed_devices(world):
        usage[device].busy = min(1.0, usage[device].busy + DEFAULT_LOAD)
        usage[device].held += sizes.get(device, 0)
    return usage


def load_of(pod: Pod, moment: float) -> float:
    texts = (pod.load, BY_OWNER.get(pod.owner[0], ""))
    return next((n for text in texts if (n := _parse_load(text, pod.uid, moment)) is not None), DEFAULT_LOAD)


def _parse_load(text: str, uid: str, moment: float) -> float | None:
    if text == "sine":
        phase = zlib.crc32(uid.encode()) / 2**32
        return 0.5 + 0.4 * math.sin(2 * math.pi * (moment / PERIOD + phase))
    try:
        value = 0.0 if text == "idle" else float(text)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _container(pod: Pod) -> str:
    return next((name for name, init, _ in pod.requests if not init), pod.requests[0][0])


def _claimed_devices(world: World) -> Iterator[str]:
    """Ids of the devices of claims in use; the driver's name for an instance ends with its start."""
    for claim in world.claims:
        for name in claim.devices if claim.pods else ():
            _, index, *instance = name.split("-")
            if not instance:
                yield gpu_uuid(world, int(index))
            for profile, start in world.layout.get(int(index), ()) if instance else ():
                if str(start) == instance[-1]:
                    yield mig_uuid(world, int(index), profile, start)
