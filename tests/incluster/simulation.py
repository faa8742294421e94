"""Days of the health loop beside an autoscaler, people and machines that do as they like.

The loop itself runs, with its client on an API server in memory. Requests fail before or after they took
effect, the loop is killed in the middle of a round, the machine's clock jumps, Prometheus is silent, nodes
are removed and made under the same names, and people cordon, reboot, repair and resize.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from infra.incluster import health, model, reporting
from infra.incluster.actions import RECORD, REPAIRED, TAINT
from infra.incluster.health import KEY, RESET, STATE, Loop
from infra.incluster.model import RANK, Fault
from tests.incluster.fake_cluster import FakeCluster

Json = dict[str, Any]
BURST, FIXED = "burst", "fixed"
DAY_S, HOUR_S, FADE_S = 86400.0, 3600.0, 600.0
PATIENCE_S = 3 * HOUR_S
"""Working time of the loop in which an action must be complete."""
MAX_ACTIONS = 4
SETTINGS: Json = {
    **{"budget": 0.2, "max": MAX_ACTIONS, "window_s": HOUR_S, "settle_s": FADE_S, "prometheus": ""},
    "pools": {BURST: {}, FIXED: {"offers": {"nvidia.com/gpu": 1}}},
}


@dataclass
class Machine:
    id: str
    pool: str
    broken: str = ""
    xid: str = "79"
    boots: int = 0
    exporter_down_until: float = 0.0


class Killed(BaseException):
    """The loop's process ended."""


class Simulation:
    def __init__(self, seed: int, mode: str) -> None:
        self.random, self.mode, self.cluster = random.Random(seed), mode, FakeCluster()
        self.now = self.working_time = 0.0
        self.events: Counter[str] = Counter()
        """How often each thing happened that a test wants to have happened."""
        self.machines: dict[str, Machine] = {}
        """By name of their node."""
        self.reported: dict[str, tuple[Fault, float, str]] = {}
        """Faults by id, until when they are reported, and of which machine."""
        self.last_fault: dict[str, float] = {}
        self.last_unmeasured: dict[str, float] = {}
        """By name of the node: when the loop was last told of a fault, or of GPUs that are not measured."""
        self.marks: defaultdict[str, set[str]] = defaultdict(set)
        """By node uid: ``finished`` by the loop, which had time to store that (``stored``); ``excused`` by a
        person, who takes it for repaired; ``repaired`` since it was cordoned."""
        self.joined_at: dict[str, float] = {}
        self.known_since: dict[str, float] = {}
        """By node uid: when it registered, and since when this process of the loop has surely seen it."""
        self.due: dict[tuple[str, str], float] = {}
        """By node uid and what the loop must do to it, the working time at which it must have."""
        self.budget_uses: list[tuple[float, str]] = []
        self.sizes: list[tuple[float, int]] = []
        """The nodes' uids that were cordoned, and the number of machines, each with its ``_clock_time``."""
        self.clock_offset = self.offset_at_start = self.clock_ahead = 0.0
        self.trouble_until = self.silent_until = self.tickets_fail_until = 0.0
        self.failed_round = self.breaker_closing = False
        self.cluster.before, self.cluster.after = self._before, self._after
        self.cluster.on_cordon, self.cluster.on_lift = self._on_cordon, self._on_lift
        self.cluster.on_write = self._on_write
        self._start()
        for pool in (BURST, FIXED) * 6:
            self._join(pool)

    def run(self, days: float) -> None:
        end = self.now + days * DAY_S
        with mock.patch.object(model, "_query", self._answer), mock.patch.object(reporting, "line"):
            while self.now < end:
                step = self.random.choice((15.0, 60.0, 240.0, 300.0))
                self.now += step
                self._run_others(step)
                self._run_round(step)

    def _start(self) -> None:
        """A new process of the loop; its clock is the machine's at its start."""
        booted = self.now - self.random.random() * DAY_S
        self.clock_ahead += max(0.0, self.clock_offset - self.offset_at_start)
        self.offset_at_start = self.clock_offset
        self.clock: Callable[[], float] = health.steady_clock(
            lambda: self.now + self.clock_offset, lambda: self.now - booted
        )
        self.known_since.clear()
        self.loop = Loop(self.cluster, {**SETTINGS, "mode": self.mode}, reporting.Metrics())

    def _clock_time(self) -> float:
        """The time, and by how much the loop's clock has jumped forwards between two processes.

        Such a jump ends a window early; one backwards, or in the life of a process, ends none.
        """
        return self.now + self.clock_ahead

    def _chance(self, mean_s: float, step: float) -> bool:
        return self.random.random() < step / mean_s

    def _uid(self, name: str) -> str:
        return str(self.cluster.nodes_by_name[name]["metadata"]["uid"])

    def _stored_breaker(self) -> Any:
        stored = self.cluster.maps.get(STATE)
        return json.loads(stored["data"][KEY])["breaker"] if stored else None

    # What the API server and Prometheus do to the loop

    def _before(self, method: str, path: str) -> None:
        tickets = method != "GET" and "configmaps" in path and STATE not in path
        bad = self.random.random() < (0.3 if self.now < self.trouble_until else 0.002)
        if bad or (tickets and self.now < self.tickets_fail_until):
            self._fail()

    def _after(self, method: str, path: str) -> None:
        if method != "GET" and self.random.random() < 0.02:
            self._fail()

    def _fail(self) -> None:
        self.failed_round = True
        self.events["request failed"] += 1
        raise Killed if self.random.random() < 0.05 else OSError("no answer")

    def _answer(self, _: str, expression: str, secret: None) -> Any:
        if self.now < self.silent_until:
            raise OSError("no answer")
        down = {name for name, item in self.machines.items() if item.exporter_down_until > self.now}
        self.last_unmeasured |= dict.fromkeys(down, self.now)
        self.reported = {key: item for key, item in self.reported.items() if item[1] > self.now}
        faults = [fault for fault, _, _ in self.reported.values() if fault.node not in down]
        self.last_fault |= {fault.node: self.now for fault in faults}
        labels: list[dict[str, str]] = [{"node": name} for name in self.machines.keys() - down]
        if expression == model.SERIES:
            labels = [
                {key: getattr(fault, key) for key in ("node", "gpu", "xid", "reason")}
                | {"UUID": fault.uuid, "class": fault.kind}
                for fault in faults
            ]
        result = [{"metric": item, "value": [0, "1"]} for item in labels]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

    # What the loop does

    def _day(self) -> str:
        return f"day {self.now / DAY_S:.2f}"

    def _on_cordon(self, before: Json, node: Json) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        assert self.last_fault.get(name, -DAY_S) >= self.joined_at[uid], f"{uid} was cordoned without a fault"
        old, new = (json.loads(item["metadata"]["annotations"].get(RECORD, "{}")) for item in (before, node))
        had_no_taint = all(item["key"] != TAINT for item in before["spec"].get("taints") or ())
        same = all(old.get(key) == new[key] for key in ("class", "faults"))
        assert had_no_taint or not same, f"{self._day()}: the record of {uid} was written again"
        self._use_budget(uid)
        self.marks.pop(uid, None)
        self._require_action(uid)
        if self.mode == "cordon":
            self._mark(uid, "finished")

    def _on_lift(self, node: Json) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        for times in (self.last_fault, self.last_unmeasured):
            quiet = self.now - times.get(name, -DAY_S)
            assert quiet >= FADE_S, f"{self._day()}: {uid} returned after {quiet} s without a fault"
        assert "repaired" in self.marks[uid], f"{self._day()}: {uid} returned without a repair"
        self.marks.pop(uid)
        self.events["returned"] += 1

    def _on_write(self, config_map: Json) -> None:
        if "closed" in config_map["data"]:
            return
        if "ticket.json" in config_map["data"]:
            uid = self._uid(json.loads(config_map["data"]["ticket.json"])["node"])
            assert "stored" not in self.marks[uid], f"{self._day()}: {uid} has its ticket"
            self._mark(uid, "finished")
            self.events["ticket"] += 1
        elif self.breaker_closing and RESET not in config_map["metadata"].get("annotations", {}):
            self.breaker_closing = False  # what was done before does not count
            self.budget_uses, self.sizes = [], [(self._clock_time(), len(self.machines))]

    def _use_budget(self, uid: str) -> None:
        """Count the node against the budget: no more in any window."""
        start = self._clock_time() - HOUR_S
        self.budget_uses = [use for use in self.budget_uses if use[0] > start]
        self.budget_uses.append((self._clock_time(), uid))
        before = [size for at, size in self.sizes if at < start][-1:]
        largest = max(before + [size for at, size in self.sizes if at >= start])
        limit = min(MAX_ACTIONS, max(1, int(0.2 * largest)))
        assert len({uid for _, uid in self.budget_uses}) <= limit, f"{self._day()}: more than the budget"
        self.events["cordoned"] += 1

    def _require_action(self, uid: str) -> None:
        if not self.marks[uid] & {"finished", "excused"}:
            self.due.setdefault((uid, "acted on"), self.working_time + PATIENCE_S)

    def _mark(self, uid: str, mark: str) -> None:
        self.marks[uid].add(mark)
        if mark in ("finished", "excused"):
            self.due.pop((uid, "acted on"), None)

    def _run_round(self, step: float) -> None:
        self.failed_round = self.now < self.silent_until
        try:
            self.loop.run_round(self.clock())
        except Killed:
            self.events["killed"] += 1
            self._start()
        if self.failed_round:
            return
        self.working_time += step
        for name in self.machines:
            self.known_since.setdefault(self._uid(name), self.now)
        # Before that, a fault may be an earlier node's of that name.
        old = {uid for uid, since in self.known_since.items() if self.now - since > FADE_S}
        for uid in old:
            if self.marks[uid] & {"finished", "repaired"} == {"finished"}:
                self._mark(uid, "stored")
        breaker = self._stored_breaker()
        for fault, _, machine_id in self.reported.values() if not breaker else ():
            machine = self.machines.get(fault.node)
            told = self.last_fault.get(fault.node) == self.now
            if told and machine and machine.id == machine_id and self._uid(fault.node) in old:
                self._require_action(self._uid(fault.node))
        for name in breaker["withheld"] if breaker else ():
            if name in self.machines and self.cluster.taint(name) is None:
                self.due.pop((self._uid(name), "acted on"), None)  # a person has to look
        self._require_progress()

    def _require_progress(self) -> None:
        """A repaired node returns, and a node with a record has the taint, whoever removed it."""
        steps = set()
        for name, machine in self.machines.items():
            uid = self._uid(name)
            quiet = self.now - max(self.last_fault.get(name, -DAY_S), self.last_unmeasured.get(name, -DAY_S))
            if "repaired" in self.marks[uid] and quiet >= FADE_S and machine.exporter_down_until < self.now:
                steps.add((uid, "returned"))
            annotations = self.cluster.nodes_by_name[name]["metadata"]["annotations"]
            if RECORD in annotations and self.cluster.taint(name) is None:
                steps.add((uid, "tainted"))
        self.due = {key: at for key, at in self.due.items() if key[1] == "acted on" or key in steps}
        for key in steps:
            self.due.setdefault(key, self.working_time + PATIENCE_S)
        for (uid, what), deadline in self.due.items():
            assert self.working_time < deadline, f"{self._day()}: {uid} is not {what}"

    # What machines, the autoscaler and people do

    def _run_others(self, step: float) -> None:
        self._autoscale(step)
        for name in list(self.machines):
            self._touch_node(name, step)
        names = list(self.machines)
        if self._chance(2 * HOUR_S, step):
            self._break_gpu(self.random.choice(names))
        if self._chance(30 * DAY_S, step):  # many at once
            for name in self.random.sample(names, len(names) // 2):
                self._break_gpu(name)
        for what, longest in ("trouble", HOUR_S), ("silent", HOUR_S), ("tickets_fail", 4 * HOUR_S):
            if self._chance(DAY_S, step):
                setattr(self, f"{what}_until", self.now + self.random.random() * longest)
        if self._chance(2 * HOUR_S, step):
            self.clock_offset = self.random.uniform(-3, 3) * HOUR_S
        if self._chance(4 * HOUR_S, step):
            self._start()
        if self._stored_breaker() and self._chance(HOUR_S, step):
            self.cluster.maps[STATE]["metadata"].setdefault("annotations", {})[RESET] = "checked"
            self.breaker_closing = True

    def _autoscale(self, step: float) -> None:
        for pool in (BURST, FIXED):
            names = [name for name, machine in self.machines.items() if machine.pool == pool]
            if len(names) < 12 and self._chance(6 * HOUR_S, step):
                self._join(pool)
            if len(names) > 2 and self._chance(3 * HOUR_S, step):
                tainted = [name for name in names if self.cluster.taint(name)]
                name = self.random.choice(tainted if tainted and self.random.random() < 0.5 else names)
                self._leave(name)
                if self.random.random() < 0.5:
                    self._join(pool, name)  # at once, under the same name

    def _touch_node(self, name: str, step: float) -> None:
        node, machine = self.cluster.nodes_by_name[name], self.machines[name]
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
            self._join(machine.pool, name, machine)
        elif self._chance(DAY_S, step):
            machine.exporter_down_until = self.now + self.random.random() * HOUR_S
        elif self._chance(2 * DAY_S, step) and machine.broken:
            self._report_fault(name, machine)

    def _join(self, pool: str, name: str = "", machine: Machine | None = None) -> None:
        free = [f"{pool}-{number}" for number in range(24) if f"{pool}-{number}" not in self.machines]
        name = name or self.random.choice(free[:4])  # names are soon used again
        uid = f"uid-{len(self.joined_at) + 1}"
        self.machines[name] = machine or Machine(uid, pool)
        self.cluster.add(name, uid, pool, own_offers=pool == BURST)
        self.joined_at[uid] = self.now
        self._record_size()

    def _leave(self, name: str) -> None:
        machine = self.machines.pop(name)
        self._forget(self.cluster.nodes_by_name.pop(name))
        self._fade_faults(machine.id, FADE_S)
        self._record_size()

    def _forget(self, node: Json) -> None:
        """The object of this node no longer exists."""
        uid = node["metadata"]["uid"]
        self.marks.pop(uid, None)
        self.known_since.pop(uid, None)
        self.due = {key: at for key, at in self.due.items() if key[0] != uid}

    def _record_size(self) -> None:
        self.sizes = [*self.sizes[-200:], (self._clock_time(), len(self.machines))]

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
            machine.broken, machine.xid = kind, "79" if kind == "replace" else "48"
        self._report_fault(name, machine)
        self.events["broke"] += 1
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
        self.cluster.annotate(name, **{REPAIRED: "new GPU"})
        self._mark(self._uid(name), "excused")
        self._mark(self._uid(name), "repaired")
        self.events["repaired"] += 1

    def _reboot(self, name: str) -> None:
        machine, node = self.machines[name], self.cluster.nodes_by_name[name]
        machine.boots += 1
        node["status"]["nodeInfo"]["bootID"] = f"boot-{machine.boots}"
        self.cluster.touch(name)
        kind = json.loads(node["metadata"]["annotations"].get(RECORD, "{}")).get("class")
        if machine.broken == "reset":
            machine.broken = ""
            self._fade_faults(machine.id, 300)
        if machine.broken == "" or kind != machine.broken:
            self._mark(self._uid(name), "excused")  # a reboot is the first remedy of either class
        if kind == "reset":
            self._mark(self._uid(name), "repaired")
