"""Machines, an autoscaler and people beside the health loop, all of which do as they like."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from infra.incluster.actions import RECORD, REPAIRED
from infra.incluster.health import KEY, RESET, STATE
from infra.incluster.model import RANK, Fault
from tests.incluster.fake_cluster import FakeCluster

BURST, FIXED = "burst", "fixed"
DAY_S, HOUR_S, FADE_S = 86400.0, 3600.0, 600.0


@dataclass
class Machine:
    id: str
    pool: str
    broken: str = ""
    reported_until: float = 0.0
    """When its fault is no longer reported."""
    boots: int = 0
    xid: str = "79"
    exporter_down_until: float = 0.0
    """Until when its exporter is down."""


@dataclass
class World:
    seed: int
    mode: str
    now: float = 0.0
    event_counts: dict[str, int] = field(default_factory=dict)
    """How often each thing happened that a test wants to have happened."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.cluster = FakeCluster()
        self.machines: dict[str, Machine] = {}
        """By name of their node."""
        self.reported: dict[str, tuple[Fault, float, str]] = {}
        """Faults by id, until when they are reported, and of which machine."""
        self.budget_uses: list[tuple[float, str]] = []
        """When (``_clock_time``) the loop cordoned the node of this uid."""
        self.size_history: list[tuple[float, int]] = []
        """Number of machines, at times (``_clock_time``)."""
        self.joined_at: dict[str, float] = {}
        """When the node of this uid registered."""
        self.known_since: dict[str, float] = {}
        """Since when this process of the loop has surely seen the node of this uid."""
        self.clock_offset = self.offset_at_start = self.clock_ahead = 0.0
        self.trouble_until = self.silent_until = self.tickets_fail_until = self.epidemic_until = 0.0
        self.breaker_closing = False
        self.count = 0

    def start(self) -> None:
        """A new process of the loop."""

    def _forget(self, node: dict[str, Any]) -> None:
        """The object of this node no longer exists."""

    def _excuse(self, name: str) -> None:
        """A person takes the node for repaired."""

    def _mark_repaired(self, name: str) -> None:
        """The node may return, once no fault of it is reported."""

    def _clock_time(self) -> float:
        """The time, and by how much the loop's clock has jumped forwards between two processes.

        Such a jump ends a window early; one backwards, or in the life of a process, ends none.
        """
        return self.now + self.clock_ahead

    def _count_event(self, event: str) -> None:
        self.event_counts[event] = self.event_counts.get(event, 0) + 1

    def _uid(self, name: str) -> str:
        return str(self.cluster.nodes_by_name[name]["metadata"]["uid"])

    def _breaker(self) -> Any:
        stored = self.cluster.maps.get(STATE)
        return json.loads(stored["data"][KEY])["breaker"] if stored else None

    def _chance(self, mean_s: float, step: float) -> bool:
        return self.random.random() < step / mean_s

    def _join(self, pool: str, name: str = "", machine: Machine | None = None) -> None:
        self.count += 1
        free = [f"{pool}-{number}" for number in range(24) if f"{pool}-{number}" not in self.machines]
        name = name or self.random.choice(free[:4])  # names are soon used again
        if machine is None:  # ids of some begin with the id of another
            ids = [other.id for other in self.machines.values() if other.id.count("/") == 3]
            base = ids[-1] if ids and self.count % 3 == 0 else "aws://"
            machine = Machine(f"{base}/{self.count}", pool)
        self.machines[name] = machine
        self.cluster.add(name, f"uid-{self.count}", pool, machine.id, pool == BURST)
        self.joined_at[f"uid-{self.count}"] = self.now
        self._record_size()

    def _leave(self, name: str) -> None:
        machine = self.machines.pop(name)
        self._forget(self.cluster.nodes_by_name.pop(name))
        self._fade_faults(machine.id, FADE_S)
        self._record_size()

    def _record_size(self) -> None:
        self.size_history = [*self.size_history[-200:], (self._clock_time(), len(self.machines))]

    def _reset_budget(self) -> None:
        """A person has closed the breaker: what was done before does not count."""
        self.budget_uses.clear()
        self.size_history.clear()
        self._record_size()

    def _fade_faults(self, id: str, seconds: float) -> None:
        last = self.now + seconds
        self.reported = {
            key: (fault, min(until, last) if machine_id == id else until, machine_id)
            for key, (fault, until, machine_id) in self.reported.items()
        }

    def _break_gpu(self, name: str) -> None:
        machine = self.machines[name]
        kind = self.random.choice(("reset", "replace", "replace"))
        if RANK[kind] >= RANK.get(machine.broken, 0):
            machine.broken = kind
            machine.xid = "79" if kind == "replace" else "48"
        self._report_fault(name, machine)
        self._count_event("broke")
        if machine.pool == BURST and self.random.random() < 0.2:  # its autoscaler is faster than the loop
            self._leave(name)
            self._join(BURST, name)

    def _report_fault(self, name: str, machine: Machine) -> None:
        duration = self.random.choice((300.0, FADE_S, HOUR_S, 400 * DAY_S))
        fault = Fault(name, "0", f"GPU-{machine.id}", machine.xid, machine.broken, "xid")
        self.reported[fault.id] = (fault, self.now + duration, machine.id)

    def _repair(self, name: str) -> None:
        """A person may be wrong about it; then the fault is reported again, sooner or later."""
        machine = self.machines[name]
        self._reboot(name)
        if self.random.random() < 0.9:
            machine.broken = ""
            self._fade_faults(machine.id, 300)
        self._excuse(name)
        self.cluster.annotate(name, **{REPAIRED: "new GPU"})
        self._mark_repaired(name)
        self._count_event("repaired")

    def _reboot(self, name: str) -> None:
        machine = self.machines[name]
        machine.boots += 1
        node = self.cluster.nodes_by_name[name]
        info = {"nodeInfo": {"bootID": f"boot-{machine.boots}"}}
        self.cluster.nodes_by_name[name] = {**node, "status": {**node["status"], **info}}
        self.cluster.touch(name)
        record = json.loads(node["metadata"]["annotations"].get(RECORD, "{}"))
        if machine.broken == "reset":
            machine.broken = ""
            self._fade_faults(machine.id, 300)
        if machine.broken == "" or record.get("class") != machine.broken:
            self._excuse(name)  # a reboot is the first remedy of either class
        if record.get("class") == "reset":
            self._mark_repaired(name)

    def _run_others(self, step: float) -> None:
        self._autoscale(step)
        for name in list(self.machines):
            self._run_people(name, step)
        names = list(self.machines)
        is_epidemic = self.now < self.epidemic_until
        if names and self._chance(HOUR_S / 4 if is_epidemic else 8 * HOUR_S, step):
            elastic = [name for name in names if is_epidemic and self.machines[name].pool == BURST]
            self._break_gpu(self.random.choice(elastic or names))
        if names and self._chance(30 * DAY_S, step):  # many at once
            for name in self.random.sample(names, len(names) // 2):
                self._break_gpu(name)
        for length, mean_s, attribute in (
            (HOUR_S, DAY_S, "trouble_until"),
            (HOUR_S, DAY_S, "silent_until"),
            (4 * HOUR_S, DAY_S, "tickets_fail_until"),
            (4 * HOUR_S, DAY_S, "epidemic_until"),
        ):
            if self._chance(mean_s, step):
                setattr(self, attribute, self.now + self.random.random() * length)
        if self._chance(2 * HOUR_S, step):
            self.clock_offset = self.random.uniform(-3, 3) * HOUR_S
        if self._chance(4 * HOUR_S, step):
            self.start()
        stored = self.cluster.maps.get(STATE)
        if stored and json.loads(stored["data"][KEY])["breaker"] and self._chance(HOUR_S, step):
            stored["metadata"].setdefault("annotations", {})[RESET] = "checked"
            self.breaker_closing = True

    def _autoscale(self, step: float) -> None:
        by_pool = {
            pool: [name for name, machine in self.machines.items() if machine.pool == pool]
            for pool in (BURST, FIXED)
        }
        for pool, names in by_pool.items():
            if len(names) < 12 and self._chance(6 * HOUR_S, step):
                self._join(pool)
            if len(names) > 2 and self._chance(3 * HOUR_S, step):
                tainted = [name for name in names if self.cluster.taint(name)]
                name = self.random.choice(tainted if tainted and self.random.random() < 0.5 else names)
                self._leave(name)
                if self.random.random() < 0.5:
                    self._join(pool, name)  # at once, under the same name

    def _run_people(self, name: str, step: float) -> None:
        node = self.cluster.nodes_by_name[name]
        if self._chance(6 * HOUR_S, step) and self.cluster.taint(name):
            self._repair(name)
        elif self._chance(4 * DAY_S, step):
            self._reboot(name)
        elif self._chance(4 * DAY_S, step):
            self.cluster.touch(name, unschedulable=not node["spec"].get("unschedulable"))
        elif self._chance(4 * DAY_S, step):
            self.cluster.touch(name, taints=[])
        elif self._chance(8 * DAY_S, step):  # its object is deleted, and the kubelet registers again
            self._forget(node)
            self._join(self.machines[name].pool, name, self.machines[name])
        elif self._chance(DAY_S, step):
            self.machines[name].exporter_down_until = self.now + self.random.random() * HOUR_S
        elif self._chance(2 * DAY_S, step) and self.machines[name].broken:
            self._report_fault(name, self.machines[name])
