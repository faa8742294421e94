"""Days of the health loop beside an autoscaler, people and machines that do as they like.

The loop itself runs, with its client on an API server in memory. Requests fail before or after they took
effect, the loop is killed in the middle of a round, the machine's clock jumps, Prometheus is silent, nodes
are removed and made under the same names, and people cordon, reboot, repair, pin and resize.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

from infra.incluster import health, reporting
from infra.incluster.acting import RECORD, TAINT
from infra.incluster.cases import Fault
from infra.incluster.health import RESET, STATE, Loop
from tests.incluster.played_world import BURST, DAY_S, FADES_S, FIXED, HOUR_S, Machine, World

PATIENCE_S = 3 * HOUR_S
"""Working time of the loop in which an action must be complete."""
MOST = 4
SETTINGS: dict[str, Any] = {
    "budget": 0.2,
    "max": MOST,
    "window_s": HOUR_S,
    "settle_s": FADES_S,
    "prometheus": "",
    "pools": {BURST: {}, FIXED: {"offers": {"nvidia.com/gpu": 1}}},
}


# A tenant's exporter forges series. Recorded ones have no label ``job``; each scraped one has that of its
# scrape configuration.
FAULTS, MEASURED = "gpuform:fault:active", "gpuform:gpu:temperature_celsius"
FORGED = {"job": "of-a-tenant", "class": "replace", "xid": "79", "gpu": "0", "UUID": "GPU-f", "reason": "xid"}


def answer(expression: str, faults: Iterable[Fault], seen: Iterable[str], nodes: Iterable[str]) -> Any:
    """For a query of the faults, or of the nodes that are ``seen``; all ``nodes`` are told of, too."""
    if FAULTS in expression:
        name, own = FAULTS, [_labels(one) for one in faults]
    else:
        name, own = MEASURED, [{"node": one} for one in seen]
    asked = re.search(rf'{name}(?:{{job="([^"]*)"}})?', expression)
    assert asked, expression
    found = [*own, *({**FORGED, "node": node} for node in nodes)]
    series = [one for one in found if asked[1] in (None, one.get("job", ""))]
    result = [{"metric": one, "value": [0, "1"]} for one in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def _labels(one: Fault) -> dict[str, str]:
    own = {"node": one.node, "gpu": one.gpu, "UUID": one.uuid, "xid": one.xid}
    return {**own, "class": one.kind, "reason": one.reason}


class Killed(BaseException):
    """The loop's process ended."""


class Days(World):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.told: list[tuple[Fault, str]] = []
        """Faults last told to the loop, and the id of the machine that has each."""
        self.loud: dict[str, float] = {}
        """When a fault of the node of this name was last told to the loop."""
        self.owed: dict[str, float] = {}
        """By node uid, the working time at which its action must be complete."""
        self.settled: set[str] = set()
        """Nodes with a ticket, or given back."""
        self.excused: set[str] = set()
        """Nodes that a person takes for repaired."""
        self.stored: set[str] = set()
        """Settled nodes about which the loop has had time to store that they are."""
        self.mended: set[str] = set()
        """Nodes repaired since they were cordoned."""
        self.unseen: dict[str, float] = {}
        """When the loop was last told that GPUs of the node of this name are not measured."""
        self.late: dict[tuple[str, str], float] = {}
        """By what the loop must do to a node, the working time at which it must have."""
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
        booted = self.now - self.random.random() * DAY_S
        self.ahead += max(0.0, self.wall - self.began)
        self.began = self.wall
        self.clock: Callable[[], float] = health.steady(
            lambda: self.now + self.wall, lambda: self.now - booted
        )
        self.known.clear()
        self.loop = Loop(self.cluster, {**SETTINGS, "mode": self.mode}, reporting.Metrics())

    # What the API server does to the loop

    def _before(self, method: str, path: str) -> None:
        tickets = method != "GET" and "configmaps" in path and STATE not in path
        bad = self.random.random() < (0.3 if self.now < self.trouble else 0.002)
        if bad or (tickets and self.now < self.no_tickets):
            self._fail()

    def _after(self, method: str, path: str) -> None:
        if method != "GET" and self.random.random() < (0.3 if method == "DELETE" else 0.02):
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

    def _cordoned(self, before: dict[str, Any], node: dict[str, Any]) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        assert self.loud.get(name, -DAY_S) >= self.joined[uid], f"{uid} was cordoned without a fault"
        old, new = (json.loads(one["metadata"]["annotations"].get(RECORD, "{}")) for one in (before, node))
        bare = all(one["key"] != TAINT for one in before["spec"].get("taints") or ())
        same = all(old.get(key) == new[key] for key in ("class", "faults"))
        assert bare or not same, f"day {self.now / DAY_S:.2f}: the record of {uid} was written again"
        self._touches(uid, "cordoned")
        self._lifted(node)
        self._owes(uid)
        if self.mode == "cordon":
            self._settles(name)
        elif self._machine(node).given_back:
            self._excuses(name)

    def _returned(self, node: dict[str, Any]) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        for since in (self.loud, self.unseen):
            quiet = self.now - since.get(name, -DAY_S)
            assert quiet >= FADES_S, f"day {self.now / DAY_S:.2f}: returned after {quiet} s without a fault"
        assert uid in self.mended, f"day {self.now / DAY_S:.2f}: {uid} was returned without a repair"
        self._lifted(node)
        self._did("returned")

    def _lifted(self, node: dict[str, Any]) -> None:
        for uids in (self.settled, self.excused, self.stored, self.mended):
            uids.discard(node["metadata"]["uid"])

    def _removed(self, claim: dict[str, Any]) -> None:
        own = claim["status"]["providerID"]
        name = next((name for name, one in self.machines.items() if one.id == own), "")
        assert name, f"the NodeClaim of {own}, which has left, was deleted"
        machine = self.machines[name]
        assert machine.broken == "replace", f"day {self.now / DAY_S:.2f}: {name} is healthy and was removed"
        assert not machine.given_back, f"{name} was removed twice"
        assert self.mode == "replace"
        self._touches(self._uid(name), "removed")
        machine.given_back = True
        self._settles(name)
        leaves = self.now + self.random.choice((60, HOUR_S, 2 * DAY_S))
        self.gone.append((leaves, own, name))
        # Karpenter starts the successor while the pods of the old node still end.
        self.coming.append((self.random.choice((self.now + 60, leaves)), self._read()))

    def _written(self, config_map: dict[str, Any]) -> None:
        if "closed" in config_map["data"]:
            return
        if "ticket.json" in config_map["data"]:
            name = json.loads(config_map["data"]["ticket.json"])["node"]
            assert self._uid(name) not in self.stored, f"day {self.now / DAY_S:.2f}: {name} has its ticket"
            self._settles(name)
            self._did("ticket")
        elif self.closes and RESET not in config_map["metadata"].get("annotations", {}):
            self.closes = False
            self._counts_anew()

    def _touches(self, uid: str, what: str) -> None:
        """Count the node against the budget: no more in any window.

        Successors of nodes that were given back in the window do not make the budget larger.
        """
        begin = self._read() - HOUR_S
        self.touched = [one for one in (*self.touched, (self._read(), uid)) if one[0] > begin]
        before = [one for one in self.sizes if one[0] < begin][-1:]
        during = [one for one in self.sizes if one[0] >= begin]
        largest = max(sum(one <= begin for one in follows) for _, follows in before + during)
        assert len({uid for _, uid in self.touched}) <= min(MOST, max(1, int(0.2 * largest))), (
            f"{what} at day {self.now / DAY_S:.2f}"
        )
        self._did(what)

    def _forgets(self, node: dict[str, Any]) -> None:
        self._lifted(node)
        for times in (self.owed, self.known):
            times.pop(node["metadata"]["uid"], None)

    # A day

    def run(self, days: float) -> None:
        end = self.now + days * DAY_S
        with (
            mock.patch("infra.incluster.cases._answer", self._answer),
            mock.patch("infra.incluster.reporting.line"),
        ):
            while self.now < end:
                step = self.random.choice((15.0, 60.0, 240.0, 300.0))
                self.now += step
                self._others(step)
                self._look(step)

    def _answer(self, _: str, expression: str) -> Any:
        if self.now < self.silent:
            raise OSError("no answer")
        dark = {name for name, one in self.machines.items() if one.dark > self.now}
        self.unseen |= dict.fromkeys(dark, self.now)
        self.reported = {key: one for key, one in self.reported.items() if one[1] > self.now}
        self.told = [(fault, of) for fault, _, of in self.reported.values() if fault.node not in dark]
        self.loud |= {fault.node: self.now for fault, _ in self.told}
        faults, seen = [fault for fault, _ in self.told], self.machines.keys() - dark
        return answer(expression, faults, seen, self.machines)

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
        for name in self.machines:
            self.known.setdefault(self._uid(name), self.now)
        # A process waits that long before it goes on with the removal of a node.
        old = {uid for uid, since in self.known.items() if self.now - since > FADES_S}
        self.stored |= (self.settled & old) - self.mended
        breaker = self._breaker()
        for fault, of in [] if breaker else self.told:
            machine = self.machines.get(fault.node)
            # Before that, it may be an earlier node's of that name.
            if machine and machine.id == of and self.now - self.known[self._uid(fault.node)] > FADES_S:
                self._owes(self._uid(fault.node))
        for name in (breaker or {"withheld": []})["withheld"]:
            if name in self.machines and self.cluster.taint(name) is None:
                self.owed.pop(self._uid(name), None)  # a person has to look
        for uid, by in self.owed.items():
            assert self.worked < by, f"day {self.now / DAY_S:.2f}: {uid} is forgotten"
        self._require_onward()

    def _require_onward(self) -> None:
        """A repaired node returns, and a node with a record has the taint, whoever removed it."""
        due = set()
        for name, machine in self.machines.items():
            uid = self._uid(name)
            quiet = self.now - max(self.loud.get(name, -DAY_S), self.unseen.get(name, -DAY_S))
            if uid in self.mended and quiet >= FADES_S and machine.dark < self.now:
                due.add((uid, "returned"))
            notes = self.cluster.nodes_by_name[name]["metadata"]["annotations"]
            if RECORD in notes and self.cluster.taint(name) is None:
                due.add((uid, "tainted"))
        self.late = {one: self.late.get(one, self.worked + PATIENCE_S) for one in due}
        for (uid, what), by in self.late.items():
            assert self.worked < by, f"day {self.now / DAY_S:.2f}: {uid} is not {what}"

    def _owes(self, uid: str) -> None:
        if uid not in self.settled | self.excused:
            self.owed.setdefault(uid, self.worked + PATIENCE_S)

    def _settles(self, name: str) -> None:
        self.owed.pop(self._uid(name), None)
        self.settled.add(self._uid(name))

    def _excuses(self, name: str) -> None:
        self.owed.pop(self._uid(name), None)
        self.excused.add(self._uid(name))

    def _mended(self, name: str) -> None:
        self.mended.add(self._uid(name))
