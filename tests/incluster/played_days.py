"""Days of the health loop beside an autoscaler, people and machines that do as they like.

The loop itself runs, with its client on an API server in memory. Requests fail before or after they took
effect, the loop is killed in the middle of a round, the machine's clock jumps, Prometheus is silent, nodes
are removed and made under the same names, and people cordon, reboot, repair, pin and resize.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest import mock

from infra.incluster import health, told
from infra.incluster.cases import Fault
from infra.incluster.loop import RESET, STATE, Loop
from tests.incluster.played_world import BURST, DAY_S, FADES_S, FIXED, HOUR_S, Machine, World

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


class Days(World):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.touched: list[tuple[float, str]] = []
        self.loud: dict[str, float] = {}
        """When a fault of the node of this name was last told to the loop."""
        self.owed: dict[str, float] = {}
        """By node uid, the working time at which its action must be complete."""
        self.settled: set[str] = set()
        """Nodes with a ticket, or given back."""
        self.excused: set[str] = set()
        """Nodes that a person takes for repaired."""
        self.worked = 0.0
        self.flawed = False
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

    def _forgets(self, node: dict[str, Any]) -> None:
        self._lifted(node)
        for times in (self.owed, self.known):
            times.pop(node["metadata"]["uid"], None)

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
