"""Health of GPUs, as the device plugin reports it.

A device once reported as unhealthy stays so until the plugin restarts or reads another configuration:
NVIDIA's plugin never recovers it (server.go of 0.19: "there is no way to recover from the Unhealthy state").
On a real node the cause is an XID; here it is a node annotation: ``faults`` with XIDs, or ``unhealthy``,
which just lists devices. An unhealthy GPU makes its MIG instances and replicas unhealthy.
"""

from __future__ import annotations

from lab.simulator import device_plugin, faults, keys
from lab.simulator.actions import Action, Annotate
from lab.simulator.objects import Pod
from lab.simulator.parts import original, parts
from lab.simulator.world import World

DRA_GATE = "NVMLDeviceHealthCheck=true"


def act(world: World) -> list[Action]:
    """Annotate the running plugin's pod with newly unhealthy devices; this never removes a device."""
    pod = world.running("device-plugin") or watching(world)
    if pod is None or not _marked(world):
        return []
    now = _sick(world, pod)
    if now <= _noted(pod.unhealthy):
        return []
    noted = ",".join(sorted(now | _noted(pod.unhealthy)))
    return [Annotate(pod, {keys.UNHEALTHY: noted}, f"marks as unhealthy {noted}")]


def watching(world: World) -> Pod | None:
    """The DRA driver's running pod if its alpha gate ``DRA_GATE`` enables health checks, else None."""
    pod = world.running(keys.DRA_OPERAND)
    return pod if pod and DRA_GATE in pod.template.value("FEATURE_GATES") else None


def tainted(world: World) -> frozenset[str]:
    """Ids of the devices that the DRA driver taints; it forgets them when it restarts."""
    pod = watching(world)
    return _noted(pod.unhealthy) if pod else frozenset()


def healthy(world: World, offered: device_plugin.Devices) -> device_plugin.Devices:
    pod = world.running("device-plugin")
    noted = _noted(pod.unhealthy) if pod else frozenset()
    if not noted and not _marked(world):
        return offered
    sick = noted | _sick(world, pod)
    return {name: [id_ for id_ in ids if original(id_) not in sick] for name, ids in offered.items()}


def _marked(world: World) -> bool:
    return keys.UNHEALTHY in world.node.annotations or keys.FAULTS in world.node.annotations


def _sick(world: World, pod: Pod | None) -> frozenset[str]:
    """Ids of the devices that are unhealthy now for this plugin; unknown names are ignored."""
    named = set(filter(None, world.node.annotations.get(keys.UNHEALTHY, "").replace(" ", "").split(",")))
    found = parts(world)
    gpus = {part.gpu for id_, part in found.items() if id_.startswith("GPU-") and id_ in named}
    gpus |= {int(name) for name in named if name.isdecimal()} | faults.sick(world.node, pod)
    return frozenset(id_ for id_, part in found.items() if id_ in named or part.gpu in gpus)


def _noted(text: str) -> frozenset[str]:
    return frozenset(filter(None, text.split(",")))
