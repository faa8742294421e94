"""Health of GPUs, as the device plugin reports it.

A device that the plugin has once called unhealthy stays so until the plugin is started again or reads another
configuration: NVIDIA's has no way back (server.go of 0.19: "there is no way to recover from the Unhealthy
state"). On a real node the cause is an XID; here it is one of the node's annotations, that of ``faults`` with
its XIDs or the one that just says who is sick. A GPU takes its slices and replicas with it.
"""

from __future__ import annotations

from gpuform.simulator import device_plugin, faults, keys
from gpuform.simulator.actions import Action, Annotate
from gpuform.simulator.objects import Pod
from gpuform.simulator.parts import original, parts
from gpuform.simulator.world import World

DRA_GATE = "NVMLDeviceHealthCheck=true"


def act(world: World) -> list[Action]:
    """The running plugin notes what it has found sick; nothing is ever taken off the note here."""
    pod = world.running("device-plugin") or watching(world)
    if pod is None or not _marked(world):
        return []
    now = _sick(world, pod)
    if now <= _noted(pod.unhealthy):
        return []
    noted = ",".join(sorted(now | _noted(pod.unhealthy)))
    return [Annotate(pod, {keys.UNHEALTHY: noted}, f"marks as unhealthy {noted}")]


def watching(world: World) -> Pod | None:
    """The DRA driver's running pod, where its alpha gate lets it look at health; else it never does."""
    pod = world.running(keys.DRA_OPERAND)
    return pod if pod and DRA_GATE in pod.template.value("FEATURE_GATES") else None


def tainted(world: World) -> frozenset[str]:
    """Ids of the devices that the DRA driver taints: what it has found, until it is started again."""
    pod = watching(world)
    return _noted(pod.unhealthy) if pod else frozenset()


def healthy(world: World, offered: device_plugin.Devices) -> device_plugin.Devices:
    """Of what is offered, the devices that the kubelet may give away."""
    pod = world.running("device-plugin")
    noted = _noted(pod.unhealthy) if pod else frozenset()
    if not noted and not _marked(world):
        return offered
    sick = noted | _sick(world, pod)
    return {name: [id_ for id_ in ids if original(id_) not in sick] for name, ids in offered.items()}


def _marked(world: World) -> bool:
    return keys.UNHEALTHY in world.node.annotations or keys.FAULTS in world.node.annotations


def _sick(world: World, pod: Pod | None) -> frozenset[str]:
    """Ids of the devices that are sick now for this plugin; names of none of them are passed over."""
    named = set(filter(None, world.node.annotations.get(keys.UNHEALTHY, "").replace(" ", "").split(",")))
    found = parts(world)
    gpus = {part.gpu for id_, part in found.items() if id_.startswith("GPU-") and id_ in named}
    gpus |= {int(name) for name in named if name.isdecimal()} | faults.sick(world.node, pod)
    return frozenset(id_ for id_, part in found.items() if id_ in named or part.gpu in gpus)


def _noted(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))
