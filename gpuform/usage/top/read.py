"""Combines the cluster's nodes and pods with Prometheus' values in one view."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from gpuform.checkout.errors import Failure
from gpuform.usage import nodes as cluster
from gpuform.usage.node_prices import total
from gpuform.usage.prometheus import Prometheus
from gpuform.usage.status import ClusterStatus
from gpuform.usage.top import hardware, holders
from gpuform.usage.top.hardware import Device
from gpuform.usage.top.measured import Metrics, query_measurements
from gpuform.usage.top.view import Gpu, Node, Slice, Use, View
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool.pool import Pool


def read_metrics(prometheus: Prometheus) -> tuple[Metrics, str]:
    """Metrics; if there are none, empty, with the reason."""
    try:
        measurements = query_measurements(prometheus)
    except Failure as failure:
        return Metrics(), str(failure)
    return measurements, "" if measurements.devices else NOTHING_YET


NOTHING_YET = "Prometheus answers, but has no GPU series yet"


def build_view(env: Environment, status: ClusterStatus, metrics: Metrics, why: str = "") -> View:
    """The GPU nodes of the declared pools, in the pools' order, with the pods on each device."""
    pods: dict[str, list[cluster.Pod]] = {}
    for pod in status.pods:
        if pod.node and not pod.has_ended and _requests_gpu(pod):
            pods.setdefault(pod.node, []).append(pod)
    pools = [(pool, status) for pool, status in zip(env.pools, status.pools, strict=True) if pool.gpus]
    nodes = tuple(
        _build_node(env, pool, node, pods.get(node.name, []), metrics)
        for pool, status in pools
        for node in status.nodes
    )
    growing = tuple(status for _, status in pools if status.bounds)
    return View(nodes, why, any(node.gpus for node in status.nodes), growing)


def _requests_gpu(pod: cluster.Pod) -> bool:
    claimed = (labels.GPU_DEVICE_CLASS, labels.MIG_DEVICE_CLASS)
    return any(key.startswith(labels.NVIDIA_PREFIX) or key in claimed for key in pod.requests)


def _build_node(
    env: Environment, pool: Pool, node: cluster.Node, pods: Sequence[cluster.Pod], metrics: Metrics
) -> Node:
    devices = hardware.list_devices(env, pool, node, metrics)
    devices = tuple(holders.with_keys(devices, pods, node.name, metrics))
    shares, loose = holders.assign_pods(devices, pods, metrics)
    numbered = list(enumerate(devices))
    gpus = []
    for index, group in groupby(numbered, key=lambda numbered_device: numbered_device[1].gpu):
        of_gpu = [(device, shares.get(place, holders.Shares())) for place, device in group]
        gpus.append(_build_gpu(node.name, index, of_gpu, pods, metrics))
    return Node(
        name=node.name,
        pool=node.pool,
        machine=node.machine,
        ready=node.ready,
        gpus=tuple(gpus),
        unassigned=tuple(holders.list_unassigned(devices, loose, metrics)),
        closed=node.closed,
    )


def _build_gpu(
    node: str,
    index: int,
    devices: Sequence[tuple[Device, holders.Shares]],
    pods: Sequence[cluster.Pod],
    metrics: Metrics,
) -> Gpu:
    first, shares = devices[0]
    gpu_use = metrics.use((node, index, ""))
    gpu = Gpu(
        index=index,
        uuid=first.uuid,
        model=first.model,
        shares=first.shares,
        compute=first.gpu_slices[0],
        memory=first.gpu_slices[1],
        use=gpu_use,
        faults=metrics.faults.get((node, index), ()),
    )
    if not first.profile:
        return replace(gpu, pods=tuple(holders.pod_uses(first, gpu_use, shares, pods, metrics)))
    slices = tuple(_build_slice(device, pod_shares, pods, metrics) for device, pod_shares in devices)
    return replace(gpu, shares=1, slices=slices, use=_sum_slices(gpu_use, slices))


def _build_slice(
    device: Device, shares: holders.Shares, pods: Sequence[cluster.Pod], metrics: Metrics
) -> Slice:
    use = metrics.use(device.key) if device.key else Use()
    return Slice(
        profile=device.profile,
        instance=device.key[2] if device.key else "",
        start=device.start,
        compute=device.compute,
        memory=device.memory,
        size=device.size,
        shares=device.shares,
        use=Use(util=use.util, memory_used=use.memory_used, memory_total=use.memory_total),
        pods=tuple(holders.pod_uses(device, use, shares, pods, metrics)),
    )


def _sum_slices(gpu_use: Use, slices: Iterable[Slice]) -> Use:
    """Use of a GPU with MIG: its slices' by their size, None if that of one is unknown.

    Power and temperature are the GPU's own.
    """
    slices = tuple(slices)

    def summed(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return sum(known) if known else None

    return Use(
        util=total(None if item.use.util is None else item.use.util * item.size for item in slices),
        memory_used=summed(item.use.memory_used for item in slices),
        memory_total=summed(item.use.memory_total for item in slices),
        power_watts=gpu_use.power_watts,
        celsius=gpu_use.celsius,
    )
