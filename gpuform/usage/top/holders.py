"""Which pod has which device of a node, and its part of the device's utilisation.

Sources, best first: the ids that the simulated device manager, or a claim, has recorded; the pods that DCGM
names; and, if a pod requests all devices of a kind on its node, these. Other pods are reported for the node
only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuform.usage.nodes import Pod
from gpuform.usage.top.hardware import Device
from gpuform.usage.top.measured import Key, Metrics, PodName
from gpuform.usage.top.view import PodUse, Use

Shares = Counter[PodName]
"""Number of shares of a device that each pod has."""


def with_keys(devices: Sequence[Device], pods: Sequence[Pod], node: str, metrics: Metrics) -> list[Device]:
    """The devices, each with the key of its measurements.

    A simulated node's slices are known by their ids, and DCGM's instances by their number: those with the
    same pod belong together, the others of a GPU's profile are matched in the order of both lists.
    """
    free = {key: metrics.devices[key].profile for key in metrics.keys_on(node)}
    holders, keyed_devices = _assign_by_id(devices, pods), list(devices)
    for device in devices:
        if device.key is not None:
            free.pop(device.key, None)
    for named in (True, False):
        for index, device in enumerate(keyed_devices):
            if device.key is not None:
                continue
            key = _match(device, free, holders.get(index, Shares()) if named else None, metrics)
            if key is not None:
                free.pop(key)
                keyed_devices[index] = replace(device, key=key)
    return keyed_devices


def _match(device: Device, free: dict[Key, str], shares: Shares | None, metrics: Metrics) -> Key | None:
    for key, profile in free.items():
        if key[1] != device.gpu or profile != device.profile:
            continue
        if shares is None or any(pod in shares for pod in metrics.holders.get(key, ())):
            return key
    return None


def assign_pods(
    devices: Sequence[Device], pods: Sequence[Pod], metrics: Metrics
) -> tuple[dict[int, Shares], list[Pod]]:
    """Shares by the device's index in the list, and the pods on an unknown device."""
    shares_by_device = _assign_by_id(devices, pods)
    assigned = {pod for shares in shares_by_device.values() for pod in shares}
    for index, device in enumerate(devices):
        for name in metrics.holders.get(device.key, ()) if device.key else ():
            if name not in assigned and any(name == (pod.namespace, pod.name) for pod in pods):
                shares_by_device.setdefault(index, Shares())[name] += 1
    assigned = {pod for shares in shares_by_device.values() for pod in shares}
    unassigned = []
    for pod in pods:
        if (pod.namespace, pod.name) in assigned:
            continue
        only_devices = _only_devices(devices, pod)
        for index, count in only_devices.items():
            shares_by_device.setdefault(index, Shares())[pod.namespace, pod.name] += count
        if not only_devices:
            unassigned.append(pod)
    return shares_by_device, unassigned


def _assign_by_id(devices: Sequence[Device], pods: Iterable[Pod]) -> dict[int, Shares]:
    places = {device.ident: index for index, device in enumerate(devices) if device.ident}
    shares_by_device: dict[int, Shares] = {}
    for pod in pods:
        for ident in pod.devices:
            # A replica's id is that of its device, and a number.
            if (index := places.get(ident.partition("::")[0])) is not None:
                shares_by_device.setdefault(index, Shares())[pod.namespace, pod.name] += 1
    return shares_by_device


def _only_devices(devices: Sequence[Device], pod: Pod) -> dict[int, int]:
    """The only possible devices: all of a kind, or the only one."""
    counts: dict[int, int] = {}
    for resource, count in pod.requests.items():
        fitting = [index for index, device in enumerate(devices) if device.resource == resource]
        if len(fitting) == 1:
            counts[fitting[0]] = round(count)
        elif fitting and devices[fitting[0]].shares == 1 and round(count) >= len(fitting):
            counts |= dict.fromkeys(fitting, 1)
    return counts


def pod_uses(device: Device, use: Use, shares: Shares, pods: Sequence[Pod], metrics: Metrics) -> list[PodUse]:
    """The pods on one device, by name.

    A single pod uses what was measured; several have their part of it by request, from the recorded series,
    or else from the device's own utilisation.
    """
    by_name = {(pod.namespace, pod.name): pod for pod in pods}
    all_shares, uses = sum(shares.values()), []
    for name, count in sorted(shares.items()):
        alone = len(shares) == 1
        used = None if use.util is None else use.util * device.size * count / all_shares
        if not alone and name in metrics.used and _requested_shares(by_name[name]):
            used = metrics.used[name] * count / _requested_shares(by_name[name])
        uses.append(
            PodUse(
                namespace=name[0],
                name=name[1],
                workload=by_name[name].workload or name[1],
                resource=device.resource,
                count=count,
                requested=count * device.size / device.shares,
                used=used,
                attributed=not alone and used is not None,
            )
        )
    return uses


def list_unassigned(devices: Sequence[Device], pods: Iterable[Pod], metrics: Metrics) -> list[PodUse]:
    """Pods on an unknown device: what they request, and their part by request."""
    sizes = {device.resource: device.size / device.shares for device in devices}
    uses = []
    for pod in pods:
        for resource, count in sorted(pod.requests.items()):
            if resource in sizes:
                name = (pod.namespace, pod.name)
                used = metrics.used.get(name)
                uses.append(
                    PodUse(
                        pod.namespace,
                        pod.name,
                        pod.workload or pod.name,
                        resource,
                        round(count),
                        count * sizes[resource],
                        used,
                        used is not None,
                    )
                )
    return uses


def _requested_shares(pod: Pod) -> int:
    """Number of shares that the pod requests in all: a recorded value is for all of them."""
    return round(sum(count for name, count in pod.requests.items() if "nvidia.com" in name))
