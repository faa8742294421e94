"""The kubelet's device manager: reports the node's devices, and allocates them to pods or rejects the pod.

Messages are those of Kubernetes 1.36 and of NVIDIA's plugin, because people search for them.
"""

from __future__ import annotations

from collections import Counter

from lab.simulator import container_engine, device_plugin, keys
from lab.simulator.actions import Action, Annotate, Fail, NodeResources, Reject
from lab.simulator.device_plugin import original_id
from lab.simulator.objects import Pod
from lab.simulator.world import World

UNEXPECTED = "UnexpectedAdmissionError"
NONE_HEALTHY = (
    "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices {}, "
    "which is unexpected"
)


class AllocationError(Exception):
    """The pod is rejected; ``reason`` becomes the reason in the pod's status."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def report_resources(world: World) -> list[Action]:
    """Node status of GPUs and adapters: an unhealthy device counts in capacity, but not in allocatable.

    Without its plugin a resource has allocatable 0 at once, and capacity 0 five minutes later.
    """
    adapters = device_plugin.efa_adapters(world) | device_plugin.rdma_adapters(world)
    offered = device_plugin.offered_devices(world) | adapters
    counts = {name: len(ids) for name, ids in offered.items()}
    healthy = {name: len(ids) for name, ids in device_plugin.healthy_devices(world, offered).items()}
    node = world.node
    allocatable = dict.fromkeys({*node.capacity, *node.allocatable}, 0) | healthy
    expired = {name: 0 for name in node.capacity if name in world.expired}
    capacity = node.capacity | expired | counts
    if capacity == node.capacity and allocatable == node.allocatable:
        return []
    new_capacity = {k: v for k, v in capacity.items() if node.capacity.get(k) != v}
    new_allocatable = {k: v for k, v in allocatable.items() if node.allocatable.get(k) != v}
    return [NodeResources(new_capacity, new_allocatable)]


def act(world: World) -> list[Action]:
    waiting = [pod for pod in world.consumers if not pod.devices and not pod.deleting]
    if not waiting:
        return []
    offered = device_plugin.offered_devices(world)
    taken = {device for pod in world.consumers for device in pod.devices.split(",") if device}
    actions: list[Action] = []
    for pod in sorted(waiting, key=lambda pod: (pod.created, pod.namespace, pod.name)):
        try:
            devices = allocate(world, pod, offered, taken)
        except AllocationError as refusal:
            actions.append(Reject(pod, refusal.reason, f"Pod was rejected: {refusal}"))
        else:
            if pod.trial and not container_engine.gives_gpus(world, pod):
                actions.append(Fail(pod, container_engine.NO_DEVICE))
                continue
            taken |= set(devices)
            annotations = {keys.DEVICES: ",".join(devices)} | ({keys.RUN_ONCE: "true"} if pod.trial else {})
            actions.append(Annotate(pod, annotations, f"gets {', '.join(devices)}"))
    return actions


def allocate(world: World, pod: Pod, offered: device_plugin.Devices, taken: set[str]) -> list[str]:
    """Device ids to allocate to one pod. Raises AllocationError."""
    needs: Counter[str] = Counter()
    init_needs: Counter[str] = Counter()
    for _, init, wanted in pod.requests:
        for resource, count in wanted:
            _check_request(world, resource, count, offered)
            # The containers that follow reuse an init container's devices.
            if init:
                init_needs[resource] = max(init_needs[resource], count)
            else:
                needs[resource] += count
    devices: list[str] = []
    healthy = device_plugin.healthy_devices(world, offered)
    for resource, count in sorted((needs | init_needs).items()):
        free = [device for device in healthy[resource] if device not in taken]
        if len(free) < count:
            raise AllocationError(
                UNEXPECTED,
                f"Allocate failed due to requested number of devices unavailable for {resource}. "
                f"Requested: {count}, Available: {len(free)}, which is unexpected",
            )
        devices += _pick_replicas(free, offered[resource], count)
    return devices


def _check_request(world: World, resource: str, count: int, offered: device_plugin.Devices) -> None:
    if resource not in offered:
        capacity = world.node.capacity.get(resource, 0)
        if not capacity:
            fact = f"Node didn't have enough resource: {resource}, requested: {count}, used: 0, capacity: 0"
            raise AllocationError(f"OutOf{resource}", fact)
        raise AllocationError(UNEXPECTED, NONE_HEALTHY.format(resource))
    if not device_plugin.healthy_devices(world, offered)[resource]:
        raise AllocationError(UNEXPECTED, NONE_HEALTHY.format(resource))
    config = world.config("device-plugin")
    assert config is not None  # a plugin that offers devices has a configuration
    shared = [entry.get("rename") or entry["name"] for entry in device_plugin.shared_resources(config)]
    strict = config.strategy == "mps" or device_plugin.sharing_block(config).get("failRequestsGreaterThanOne")
    if resource in shared and strict and count > 1:
        raise AllocationError(
            UNEXPECTED,
            "Allocate failed due to rpc error: code = Unknown desc = invalid allocation request for "
            f'"{resource}": invalid request: maximum request size for shared resources is 1; found {count}, '
            "which is unexpected",
        )


def _pick_replicas(free: list[str], all_devices: list[str], count: int) -> list[str]:
    """Take replicas from the GPU with the fewest allocated, as NVIDIA's plugin does; others in order."""
    used = Counter(original_id(device) for device in set(all_devices) - set(free))
    chosen: list[str] = []
    remaining = list(free)
    for _ in range(count):
        device = min(remaining, key=lambda device_id: used[original_id(device_id)])
        used[original_id(device)] += 1
        remaining.remove(device)
        chosen.append(device)
    return chosen
