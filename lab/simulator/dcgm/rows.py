"""The rows of an exporter, with labels and values: one per GPU, or per MIG instance if the GPU has any.

A GPU with MIG on but without instances has one row, as with the real exporter in its flexible mode. A lost
GPU (fault ``gpu-lost`` or XID 79) has a row only for its XIDs: DCGM returns blank values, and the exporter
skips these [dcgm-exporter, toString: DCGM_FT_INT64_BLANK and skipDCGMValue]. An exporter that was started
afterwards has no row for it.

XIDs are events: they count for five minutes (the exporter's ``DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE``), and the
last one is shown until the exporter restarts. The state is also lost when the simulator ends: counters then
begin at 0, which Prometheus takes for a restart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from lab.simulator import driver, faults
from lab.simulator.dcgm import device
from lab.simulator.dcgm.device import FaultsByKind, State
from lab.simulator.dcgm.load import Use, usage_by_device
from lab.simulator.device_plugin import gpu_uuid, mig_uuid, partitions
from lab.simulator.faults import Fault
from lab.simulator.hardware import Mig
from lab.simulator.objects import Pod
from lab.simulator.world import World

WINDOW_MS = 300_000
MAX_XIDS = 64  # XIDs kept per GPU


@dataclass(slots=True)
class NodeWatch:
    """One node: ``since`` is when its exporter was started, ``stopped`` when it was last seen down."""

    uid: str = ""
    driver: str = ""
    exporter: str = ""
    since: float = 0.0
    stopped: float = 0.0
    gpus: list[State] = field(default_factory=list)

    def begin(self, world: World, pod: Pod, now: float) -> None:
        """Drop what a restart of the exporter or the driver, or another node of that name, invalidates."""
        if self.uid != world.node.uid:
            self.uid, self.driver, self.gpus, self.stopped = world.node.uid, "", [], 0.0
        loader = world.running("driver")
        loaded = loader.uid if loader else driver.version(world) or ""
        if self.driver and loaded != self.driver:
            self.gpus = [state.after_restart(now) for state in self.gpus]
        self.driver = loaded
        since = max(datetime.fromisoformat(pod.created).timestamp(), self.stopped)
        if (self.exporter, self.since) != (pod.uid, since):
            self.exporter, self.since = pod.uid, since
            for gpu in self.gpus:
                gpu.events, gpu.last = set(), (0.0, 0)
        self.gpus += [State() for _ in range(world.gpus - len(self.gpus))]


@dataclass(slots=True)
class Row:
    """``labels`` identify the device, ``pod`` its holder; ``xids`` are those of the window."""

    labels: dict[str, str]
    pod: dict[str, str]
    values: Mapping[str, float]
    xid: int
    xids: Counter[int]
    faults_by_kind: FaultsByKind
    idle: bool
    instance: bool


def rows(world: World, watch: NodeWatch, moment: float) -> Iterator[Row]:
    """Every row of the node; advances ``watch`` to ``moment``."""
    gpu, layout = world.gpu, world.layout
    if gpu is None:
        return
    usage, partitions_by_id = usage_by_device(world, moment), partitions(world)
    all_faults = faults.faults_of(world.node)
    for index, state in enumerate(watch.gpus[: world.gpus]):
        own_faults = [fault for fault in all_faults if fault.gpu == index]
        kinds = {faults.GPU_LOST if fault.is_lost else fault.kind: fault for fault in reversed(own_faults)}
        placed = layout.get(index, ())
        ids = [mig_uuid(world, index, *instance) for instance in placed] or [gpu_uuid(world, index)]
        busy = link = usage[ids[0]].busy
        if placed:
            assert gpu.mig is not None
            shapes = [gpu.mig.profiles[name] for name, _ in placed]
            total = sum(usage[id_].busy * shape.compute for id_, shape in zip(ids, shapes, strict=True))
            busy = min(1.0, total / gpu.mig.compute)
        # A pod with several whole GPUs uses a quarter of its load on the NVLinks.
        share = 0.25 * link if not placed and usage[ids[0]].peers > 1 else 0.0
        device.advance(state, gpu, busy, share, kinds, moment)
        xids = _record_xids(state, own_faults, watch.since, moment)
        lost = kinds.get(faults.GPU_LOST)
        if lost and lost.since < watch.since:
            continue
        common = device.gpu_values(state, gpu, busy, kinds)
        labels = {
            "gpu": str(index),
            "UUID": gpu_uuid(world, index),
            "pci_bus_id": f"00000000:{16 * (index + 1) - 9:02X}:00.0",
            "device": f"nvidia{index}",
            "modelName": gpu.product,
            "Hostname": world.node.name,
        }
        for id_, instance in zip(ids, placed or [None], strict=True):
            use, row_labels = usage[id_], labels
            if instance:
                assert gpu.mig is not None
                number = str(instance_id(gpu.mig, *instance))
                row_labels = labels | {"GPU_I_PROFILE": instance[0], "GPU_I_ID": number}
            size = partitions_by_id[id_].memory_mib
            own_values = device.device_values(use.busy, size, use.held, bool(instance))
            values = {} if lost else common | own_values
            yield Row(row_labels, _pod(use), values, state.last[1], xids, kinds, busy < 0.01, bool(instance))


def _record_xids(state: State, own_faults: list[Fault], since: float, moment: float) -> Counter[int]:
    """Number of each XID in the window; XIDs from before ``since``, the exporter's start, do not count."""
    for fault in own_faults:
        offsets = device.double_bits(fault.since, moment)[-10:] if fault.kind == faults.ECC else [0]
        times = (fault.since + seconds for seconds in offsets)
        if fault.reported_xid:
            state.events.update((at, fault.reported_xid) for at in times if since <= at <= moment)
    state.last = max([state.last, *state.events])
    begin = moment - WINDOW_MS / 1000
    state.events = set(sorted(event for event in state.events if event[0] > begin)[-MAX_XIDS:])
    return Counter(xid for _, xid in state.events)


def instance_id(mig: Mig, profile: str, start: int) -> int:
    """The driver's id of a GPU instance: its place in the tree of halves, from the whole GPU (A100, A30)."""
    size = mig.profiles[profile].memory_slices
    return mig.slices // size - 1 + start // size


def _pod(use: Use) -> dict[str, str]:
    if use.pod is None:
        return {}
    namespace, name, container = use.pod
    return {"container": container, "namespace": namespace, "pod": name}
