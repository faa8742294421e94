"""What a node's exporter keeps of its GPUs: the models' states, and the XIDs.

XIDs are events: they count for five minutes (the exporter's ``DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE``), and the
last one is shown until the exporter restarts. The state is also lost when the simulator ends: counters then
begin at 0, which Prometheus takes for a restart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from lab.simulator import driver, faults, xids
from lab.simulator.dcgm.device import Broken, State, advance, double_bits
from lab.simulator.dcgm.figures import Figures
from lab.simulator.faults import Fault
from lab.simulator.objects import Pod
from lab.simulator.world import World

WINDOW_MS = 300_000
MOST = 64
"""XIDs kept per GPU."""

Event = tuple[float, int]
"""Time (seconds since 1970) and XID."""


@dataclass(slots=True)
class Watched:
    """One GPU as the exporter knows it."""

    state: State = field(default_factory=State)
    events: set[Event] = field(default_factory=set)
    last: Event = (0.0, 0)


@dataclass(slots=True)
class NodeWatch:
    """One node: ``since`` is when its exporter was started, ``stopped`` when it was last seen down."""

    uid: str = ""
    driver: str = ""
    exporter: str = ""
    since: float = 0.0
    stopped: float = 0.0
    gpus: list[Watched] = field(default_factory=list)

    def begin(self, world: World, pod: Pod, now: float) -> None:
        """Drop what a restart of the exporter or the driver, or another node of that name, invalidates."""
        if self.uid != world.node.uid:
            self.uid, self.driver, self.gpus, self.stopped = world.node.uid, "", [], 0.0
        loaded = _driver(world)
        if self.driver and loaded != self.driver:
            for gpu in self.gpus:
                gpu.state = gpu.state.again(now)
        self.driver = loaded
        since = max(datetime.fromisoformat(pod.created).timestamp(), self.stopped)
        if (self.exporter, self.since) != (pod.uid, since):
            self.exporter, self.since = pod.uid, since
            for gpu in self.gpus:
                gpu.events, gpu.last = set(), (0.0, 0)
        self.gpus += [Watched() for _ in range(world.gpus - len(self.gpus))]

    def stop(self, now: float) -> None:
        """The exporter is down, and loses the XIDs that it has seen."""
        self.stopped = now


def _driver(world: World) -> str:
    pod = world.running("driver")
    return pod.uid if pod else driver.version(world) or ""


def broken(all_of_node: tuple[Fault, ...], gpu: int) -> tuple[Fault, ...]:
    return tuple(fault for fault in all_of_node if fault.gpu == gpu)


def look(
    watched: Watched, made: Figures, use: tuple[float, float], found: tuple[Fault, ...], moment: float
) -> Broken:
    """Advance one GPU to ``moment``; ``use`` is its load and the used share of its NVLinks."""
    kinds: Broken = {}
    for fault in found:
        kinds.setdefault(fault.kind, fault)
    advance(watched.state, made, *use, kinds, moment)
    return kinds


def hear(watched: Watched, found: tuple[Fault, ...], since: float, moment: float) -> Counter[int]:
    """Number of each XID in the window; XIDs from before ``since``, the exporter's start, do not count."""
    for fault in found:
        times = double_bits(fault.since, moment) if fault.kind == faults.ECC else [fault.since]
        if fault.sent:
            heard = (at for at in times if since <= at <= moment)
            watched.events.update((at, fault.sent) for at in heard)
    if watched.events:
        watched.last = max(watched.last, *watched.events)
    begin = moment - WINDOW_MS / 1000
    recent = sorted(event for event in watched.events if event[0] > begin)[-MOST:]
    watched.events = set(recent)
    return Counter(xid for _, xid in recent)


def last_xid(watched: Watched) -> tuple[int, str]:
    return watched.last[1], xids.name(watched.last[1])
