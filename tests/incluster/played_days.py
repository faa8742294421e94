"""Days of the health loop beside an autoscaler, people and machines that do as they like.

The loop itself runs, with its client on an API server in memory. Requests fail before or after they took
effect, the loop is killed in the middle of a round, the machine's clock jumps, Prometheus is silent, nodes
are removed and made under the same names, and people cordon, reboot, repair, pin and resize.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from infra.incluster import health, told
from infra.incluster.acting import RECORD, REPAIRED
from infra.incluster.cases import RANK, Fault
from infra.incluster.loop import KEY, RESET, STATE, Loop
from tests.incluster.played_cluster import PlayedCluster, _deleted

BURST, FIXED = "burst", "fixed"
DAY_S, HOUR_S, FADES_S = 86400.0, 3600.0, 600.0
PATIENCE_S = 3 * HOUR_S
"""Working time of the loop in which an action must be complete."""
MOST = 3
SETTINGS: dict[str, Any] = {
    "budget": 0.2,
    "max": MOST,
    "window_s": HOUR_S,
    "settle_s": FADES_S,
    "prometheus": "",
    "pools": {BURST: {}, FIXED: {"offers": {"nvidia.com/gpu": 1}}},
}


class Killed(BaseException):
    """The loop's process ended."""


@dataclass
class Machine:
    id: str
    pool: str
    broken: str = ""
    until: float = 0.0
    """When its fault is no longer reported."""
    boots: int = 0
    xid: str = "79"
    given_back: bool = False


@dataclass
class Days:
    seed: int
    mode: str
    now: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    """How often each thing happened that a test wants to have happened."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.cluster = PlayedCluster()
        self.machines: dict[str, Machine] = {}
        """By name of their node."""
        self.reported: dict[str, tuple[Fault, float, str]] = {}
        """Faults by id, until when they are reported, and of which machine."""
        self.gone: list[tuple[float, str, str]] = []
        """When the machine with this id leaves, and its node's name."""
        self.touched: list[tuple[float, str]] = []
        self.sizes: list[tuple[float, int]] = []
        self.loud: dict[str, float] = {}
        """When a fault of the node of this name was last told to the loop."""
        self.owed: dict[str, float] = {}
        """By node uid, the working time at which its action must be complete."""
        self.settled: set[str] = set()
        """Nodes with a ticket, or given back."""
        self.excused: set[str] = set()
        """Nodes that a person takes for repaired."""
        self.known: dict[str, float] = {}
        """Since when this process of the loop can have seen the node."""
        self.worked = self.wall = 0.0
        self.trouble = self.silent = self.no_tickets = 0.0
        self.flawed = self.closes = False
        self.count = 0
        self.cluster.before, self.cluster.after = self._before, self._after
        self.cluster.on_cordon, self.cluster.on_delete = self._cordoned, self._removed
        self.cluster.on_lift = self._returned
        self.cluster.on_write = self._written
        self.start()
        for _ in range(6):
            self._join(BURST)
            self._join(FIXED)

    def start(self) -> None:
        """A new process; its clock is the machine's at its start."""
        before = getattr(self, "clock", None)
        self.clock: Callable[[], float] = health.steady(lambda: self.now + self.wall, lambda: self.now)
        if before is None or self.clock() > before() + 1:
            self.touched.clear()  # a clock that went ahead between two processes ends the window
        self.known = {uid: max(since, self.now) for uid, since in self.known.items()}
        self.loop = Loop(self.cluster, {**SETTINGS, "mode": self.mode}, told.Metrics())

    def _did(self, what: str) -> None:
        self.kinds[what] = self.kinds.get(what, 0) + 1

    def _chance(self, each_s: float, step: float) -> bool:
        return self.random.random() < step / each_s

    # What the API server does to the loop

    def _before(self, method: str, path: str) -> None:
        tickets = method != "GET" and "configmaps" in path and STATE not in path
        bad = self.random.random() < (0.3 if self.now < self.trouble else 0.002)
        if bad or (tickets and self.now < self.no_tickets):
            self._fail()

    def _after(self, method: str, path: str) -> None:
        if method != "GET" and self.random.random() < 0.01:
            self._fail()

    def _fail(self) -> None:
        self.flawed = True
        self._did("request failed")
        if self.random.random() < 0.05:
            raise Killed
        raise OSError("no answer")

    # What the loop does

    def _machine(self, node: dict[str, Any]) -> Machine:
        return self.machines[node["metadata"]["name"]]

    def _cordoned(self, node: dict[str, Any]) -> None:
        uid = node["metadata"]["uid"]
        self.touched.append((self.now, uid))
        self._within(self.touched, "cordoned")
        self._lifted(node)
        self._owes(uid)
        if self.mode == "cordon" or self._machine(node).given_back:
            self._settles(node["metadata"]["name"])
        self._did("cordoned")

    def _returned(self, node: dict[str, Any]) -> None:
        quiet = self.now - self.loud.get(node["metadata"]["name"], -DAY_S)
        assert quiet >= FADES_S, f"day {self.now / DAY_S:.2f}: returned after {quiet} s without a fault"
        self._lifted(node)

    def _lifted(self, node: dict[str, Any]) -> None:
        for uids in (self.settled, self.excused):
            uids.discard(node["metadata"]["uid"])

    def _removed(self, claim: dict[str, Any]) -> None:
        own = claim["status"]["providerID"]
        name = next((name for name, one in self.machines.items() if one.id == own), "")
        assert name, f"the NodeClaim of {own}, which has left, was deleted"
        machine = self.machines[name]
        assert machine.broken == "replace", f"day {self.now / DAY_S:.2f}: {name} is healthy and was removed"
        assert not machine.given_back, f"{name} was removed twice"
        assert self.mode == "replace"
        machine.given_back = True
        self._settles(name)
        self.gone.append((self.now + self.random.choice((60, HOUR_S, 2 * DAY_S)), own, name))
        self._did("removed")

    def _written(self, config_map: dict[str, Any]) -> None:
        if "ticket.json" in config_map["data"]:
            name = json.loads(config_map["data"]["ticket.json"])["node"]
            self._settles(name)
            self._did("ticket")
        elif self.closes and RESET not in config_map["metadata"].get("annotations", {}):
            self.closes = False
            self.touched.clear()  # counting restarts

    def _within(self, times: list[tuple[float, str]], what: str) -> None:
        begin = self.now - HOUR_S
        times[:] = [one for one in times if one[0] > begin]
        before = [size for at, size in self.sizes if at < begin][-1:]
        largest = max(before + [size for at, size in self.sizes if at >= begin])
        assert len({uid for _, uid in times}) <= min(MOST, max(1, int(0.2 * largest))), (
            f"{what} at day {self.now / DAY_S:.2f}"
        )

    # What others do

    def _join(self, pool: str, name: str = "", machine: Machine | None = None) -> None:
        self.count += 1
        free = [f"{pool}-{number}" for number in range(24) if f"{pool}-{number}" not in self.machines]
        name = name or self.random.choice(free[:4])  # names are soon used again
        machine = machine or Machine(f"aws:///{self.count}", pool)
        self.machines[name] = machine
        self.cluster.add(name, f"uid-{self.count}", pool, machine.id, pool == BURST)
        self.known[f"uid-{self.count}"] = self.now
        if pool == BURST and not any(_of(claim, machine) for claim in self.cluster.claims.values()):
            meta = {"name": f"claim-{self.count}", "uid": f"claim-{self.count}"}
            status = {"providerID": machine.id, "nodeName": name}
            self.cluster.claims[meta["name"]] = {"metadata": meta, "status": status}
        self._size()

    def _leave(self, name: str) -> None:
        machine = self.machines.pop(name)
        self._forgets(self.cluster.nodes_by_name.pop(name))
        for key, claim in list(self.cluster.claims.items()):
            left = all(claim["status"]["providerID"] != one.id for one in self.machines.values())
            if left and self.random.random() < 0.1:  # most stay for a while
                del self.cluster.claims[key]
        self._fades(machine.id, FADES_S)
        self._size()

    def _forgets(self, node: dict[str, Any]) -> None:
        self._lifted(node)
        for times in (self.owed, self.known):
            times.pop(node["metadata"]["uid"], None)

    def _size(self) -> None:
        self.sizes = [*self.sizes[-200:], (self.now, len(self.machines))]

    def _fades(self, id: str, seconds: float) -> None:
        last = self.now + seconds
        self.reported = {
            key: (fault, min(until, last) if of == id else until, of)
            for key, (fault, until, of) in self.reported.items()
        }

    def _breaks(self, name: str) -> None:
        machine = self.machines[name]
        kind = self.random.choice(("reset", "replace"))
        if RANK[kind] >= RANK.get(machine.broken, 0):
            machine.broken = kind
            machine.xid = "79" if kind == "replace" else "48"
        self._reports(name, machine)
        self._did("broke")
        if machine.pool == BURST and self.random.random() < 0.2:  # its autoscaler is faster than the loop
            self._leave(name)
            self._join(BURST, name)

    def _reports(self, name: str, machine: Machine) -> None:
        lasts = self.random.choice((300.0, FADES_S, HOUR_S, 400 * DAY_S))
        fault = Fault(name, "0", f"GPU-{machine.id}", machine.xid, machine.broken, "xid")
        self.reported[fault.id] = (fault, self.now + lasts, machine.id)

    def _repairs(self, name: str) -> None:
        """A person may be wrong about it; then the fault is reported again, sooner or later."""
        machine = self.machines[name]
        self._reboots(name)
        if self.random.random() < 0.9:
            machine.broken = ""
            self._fades(machine.id, 300)
        self._excuses(name)
        self.cluster.annotate(name, **{REPAIRED: "new GPU"})
        self._did("repaired")

    def _reboots(self, name: str) -> None:
        machine = self.machines[name]
        machine.boots += 1
        node = self.cluster.nodes_by_name[name]
        info = {"nodeInfo": {"bootID": f"boot-{machine.boots}"}}
        self.cluster.nodes_by_name[name] = {**node, "status": {**node["status"], **info}}
        self.cluster.touch(name)
        record = json.loads(node["metadata"]["annotations"].get(RECORD, "{}"))
        if machine.broken == "reset":
            machine.broken = ""
            self._fades(machine.id, 300)
        if machine.broken == "" or record.get("class") != machine.broken:
            self._excuses(name)  # a reboot is the first remedy of either class

    def _others(self, step: float) -> None:
        for at, own, name in [one for one in self.gone if one[0] <= self.now]:
            self.gone.remove((at, own, name))
            if name in self.machines and self.machines[name].id == own:
                self._leave(name)
                self._join(BURST)
        self._autoscales(step)
        for name in list(self.machines):
            self._people(name, step)
        names = list(self.machines)
        if names and self._chance(8 * HOUR_S, step):
            self._breaks(self.random.choice(names))
        if names and self._chance(30 * DAY_S, step):  # many at once
            for name in self.random.sample(names, len(names) // 2):
                self._breaks(name)
        for length, each, what in (
            (HOUR_S, DAY_S, "trouble"),
            (HOUR_S, DAY_S, "silent"),
            (2 * HOUR_S, DAY_S, "no_tickets"),
        ):
            if self._chance(each, step):
                setattr(self, what, self.now + self.random.random() * length)
        if self._chance(6 * HOUR_S, step):
            self.wall = self.random.uniform(-3, 3) * HOUR_S
        if self._chance(12 * HOUR_S, step):
            self.start()
        kept = self.cluster.maps.get(STATE)
        if kept and json.loads(kept["data"][KEY])["breaker"] and self._chance(3 * HOUR_S, step):
            kept["metadata"].setdefault("annotations", {})[RESET] = "checked"
            self.closes = True

    def _autoscales(self, step: float) -> None:
        own = {
            pool: [name for name, one in self.machines.items() if one.pool == pool] for pool in (BURST, FIXED)
        }
        for pool, names in own.items():
            if len(names) < 12 and self._chance(3 * HOUR_S, step):
                self._join(pool)
            if len(names) > 2 and self._chance(3 * HOUR_S, step):
                name = self.random.choice(names)
                self._leave(name)
                if self.random.random() < 0.5:
                    self._join(pool, name)  # at once, under the same name
        if own[BURST] and self._chance(DAY_S, step):  # the autoscaler's own deletion
            name = self.random.choice(own[BURST])
            for key, claim in self.cluster.claims.items():
                if name in self.machines and _of(claim, self.machines[name]):
                    self.cluster.claims[key] = _deleted(claim)
                    self.gone.append((self.now + HOUR_S, self.machines[name].id, name))

    def _people(self, name: str, step: float) -> None:
        node = self.cluster.nodes_by_name[name]
        if self._chance(6 * HOUR_S, step) and self.cluster.taint(name):
            self._repairs(name)
        elif self._chance(4 * DAY_S, step):
            self._reboots(name)
        elif self._chance(4 * DAY_S, step):
            self.cluster.touch(name, unschedulable=not node["spec"].get("unschedulable"))
        elif self._chance(4 * DAY_S, step):
            self.cluster.touch(name, taints=[])
        elif self._chance(8 * DAY_S, step):
            pinned = node["metadata"]["annotations"].get("karpenter.sh/do-not-disrupt")
            self.cluster.annotate(name, **{"karpenter.sh/do-not-disrupt": None if pinned else "true"})
        elif self._chance(8 * DAY_S, step):  # its object is deleted, and the kubelet registers again
            self._forgets(node)
            self._join(self.machines[name].pool, name, self.machines[name])
        elif self._chance(2 * DAY_S, step) and self.machines[name].broken:
            self._reports(name, self.machines[name])

    # A day

    def run(self, days: float) -> None:
        end = self.now + days * DAY_S
        with (
            mock.patch("infra.incluster.loop.asked.faults", self._faults),
            mock.patch("infra.incluster.loop.asked.measured", self._measured),
            mock.patch("infra.incluster.loop.told.line"),
        ):
            while self.now < end:
                step = self.random.choice((15.0, 60.0, 240.0, 300.0))
                self.now += step
                self._others(step)
                self._look(step)

    def _faults(self, _: str) -> list[Fault]:
        if self.now < self.silent:
            raise OSError("no answer")
        self.reported = {key: one for key, one in self.reported.items() if one[1] > self.now}
        self.loud |= {fault.node: self.now for fault, _, _ in self.reported.values()}
        return [fault for fault, _, _ in self.reported.values()]

    def _measured(self, _: str) -> frozenset[str]:
        return frozenset(self.machines)

    def _look(self, step: float) -> None:
        self.flawed = self.now < self.silent
        try:
            self.loop.look(self.clock())
        except Killed:
            self._did("killed")
            self.start()
        if self.flawed:
            return
        self.worked += step
        breaker = self._breaker()
        for fault, _, of in [] if breaker else self.reported.values():
            machine = self.machines.get(fault.node)
            # Before that, it may be an earlier node's of that name.
            if machine and machine.id == of and self.now - self.known[self._uid(fault.node)] > FADES_S:
                self._owes(self._uid(fault.node))
        for name in (breaker or {"withheld": []})["withheld"]:
            if name in self.machines and self.cluster.taint(name) is None:
                self.owed.pop(self._uid(name), None)  # a person has to look
        for uid, by in self.owed.items():
            assert self.worked < by, f"day {self.now / DAY_S:.2f}: {uid} is forgotten"

    def _owes(self, uid: str) -> None:
        if uid not in self.settled | self.excused:
            self.owed.setdefault(uid, self.worked + PATIENCE_S)

    def _settles(self, name: str) -> None:
        self.owed.pop(self._uid(name), None)
        self.settled.add(self._uid(name))

    def _excuses(self, name: str) -> None:
        self.owed.pop(self._uid(name), None)
        self.excused.add(self._uid(name))

    def _uid(self, name: str) -> str:
        return str(self.cluster.nodes_by_name[name]["metadata"]["uid"])

    def _breaker(self) -> Any:
        kept = self.cluster.maps.get(STATE)
        return json.loads(kept["data"][KEY])["breaker"] if kept else None


def _of(claim: dict[str, Any], machine: Machine) -> bool:
    return bool(claim["status"]["providerID"] == machine.id)
