"""Combines the cluster's nodes and pods with Prometheus' values in one view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from gpuform.checkout.errors import Failure
from gpuform.usage import nodes as seen
from gpuform.usage.prometheus import Prometheus
from gpuform.usage.status import ClusterStatus
from gpuform.usage.top import hardware, holders
from gpuform.usage.top.hardware import Device
from gpuform.usage.top.measured import Measured, ask
from gpuform.usage.top.view import Gpu, Node, Slice, Use, View
from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool


def measure(prometheus: Prometheus) -> tuple[Measured, str]:
    """Measurements; if there are none, empty, with the reason."""
    try:
        found = ask(prometheus)
    except Failure as failure:
        return Measured(), str(failure)
    return found, "" if found.devices else NOTHING_YET


NOTHING_YET = "Prometheus answers, but has no GPU series yet"


def view(env: Environment, status: ClusterStatus, measured: Measured, why: str = "") -> View:
    """The GPU nodes of the declared pools, in the pools' order, with the pods on each device."""
    pods: dict[str, list[seen.Pod]] = {}
    for pod in status.pods:
        if pod.node and not pod.over and _asks_gpu(pod):
            pods.setdefault(pod.node, []).append(pod)
    pools = [(pool, found) for pool, found in zip(env.pools, status.pools, strict=True) if pool.gpus]
    nodes = tuple(
        _node(env, pool, node, pods.get(node.name, []), measured)
        for pool, found in pools
        for node in found.nodes
    )
    growing = tuple(found for _, found in pools if found.bounds)
    return View(nodes, why, any(node.gpus for node in status.nodes), growing)


def _asks_gpu(pod: seen.Pod) -> bool:
    claimed = (labels.GPU_DEVICE_CLASS, labels.MIG_DEVICE_CLASS)
    return any(key.startswith(labels.NVIDIA_PREFIX) or key in claimed for key in pod.asks)


def _node(
    env: Environment, pool: Pool, node: seen.Node, pods: Sequence[seen.Pod], measured: Measured
) -> Node:
    devices = hardware.devices(env, pool, node, measured)
    devices = tuple(holders.keyed(devices, pods, node.name, measured))
    shares, loose = holders.placed(devices, pods, measured)
    numbered = list(enumerate(devices))
    gpus = []
    for index, group in groupby(numbered, key=lambda one: one[1].gpu):
        mine = [(device, shares.get(place, holders.Shares())) for place, device in group]
        gpus.append(_gpu(node.name, index, mine, pods, measured))
    return Node(
        name=node.name,
        pool=node.pool,
        machine=node.machine,
        ready=node.ready,
        gpus=tuple(gpus),
        loose=tuple(holders.loose(devices, loose, measured)),
        closed=node.closed,
    )


def _gpu(
    node: str,
    index: int,
    devices: Sequence[tuple[Device, holders.Shares]],
    pods: Sequence[seen.Pod],
    measured: Measured,
) -> Gpu:
    first, shares = devices[0]
    whole = measured.use((node, index, ""))
    bare = Gpu(
        index=index,
        uuid=first.uuid,
        model=first.model,
        shares=first.shares,
        compute=first.of[0],
        memory=first.of[1],
        use=whole,
        faults=measured.faults.get((node, index), ()),
    )
    if not first.profile:
        return replace(bare, pods=tuple(holders.uses(first, whole, shares, pods, measured)))
    slices = tuple(_slice(device, held, pods, measured) for device, held in devices)
    return replace(bare, shares=1, slices=slices, use=_together(whole, slices))


def _slice(device: Device, shares: holders.Shares, pods: Sequence[seen.Pod], measured: Measured) -> Slice:
    use = measured.use(device.key) if device.key else Use()
    return Slice(
        profile=device.profile,
        instance=device.key[2] if device.key else "",
        start=device.start,
        compute=device.compute,
        memory=device.memory,
        size=device.size,
        shares=device.shares,
        use=Use(util=use.util, memory_used=use.memory_used, memory_total=use.memory_total),
        pods=tuple(holders.uses(device, use, shares, pods, measured)),
    )


def _together(whole: Use, slices: Iterable[Slice]) -> Use:
    """Use of a GPU with MIG: its slices' by their size; power and temperature are the GPU's own."""
    slices = tuple(slices)

    def summed(values: Iterable[float | None]) -> float | None:
        found = [value for value in values if value is not None]
        return sum(found) if found else None

    return Use(
        util=summed(None if one.use.util is None else one.use.util * one.size for one in slices),
        memory_used=summed(one.use.memory_used for one in slices),
        memory_total=summed(one.use.memory_total for one in slices),
        power_watts=whole.power_watts,
        celsius=whole.celsius,
    )
