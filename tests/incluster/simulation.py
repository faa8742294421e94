"""Days of the health loop beside an autoscaler, people and machines that do as they like.

The loop itself runs, with its client on an API server in memory. Requests fail before or after they took
effect, the loop is killed in the middle of a round, the machine's clock jumps, Prometheus is silent, nodes
are removed and made under the same names, and people cordon, reboot, repair and resize.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

from infra.incluster import health, reporting
from infra.incluster.actions import RECORD, TAINT
from infra.incluster.health import RESET, STATE, Loop
from infra.incluster.model import Fault
from tests.incluster.simulated_world import BURST, DAY_S, FADE_S, FIXED, HOUR_S, World

PATIENCE_S = 3 * HOUR_S
"""Working time of the loop in which an action must be complete."""
MAX_ACTIONS = 4
SETTINGS: dict[str, Any] = {
    "budget": 0.2,
    "max": MAX_ACTIONS,
    "window_s": HOUR_S,
    "settle_s": FADE_S,
    "prometheus": "",
    "pools": {BURST: {}, FIXED: {"offers": {"nvidia.com/gpu": 1}}},
}


# A tenant's exporter forges series. Recorded ones have no label ``job``; each scraped one has that of its
# scrape configuration.
FAULTS, MEASURED = "gpuform:fault:active", "gpuform:gpu:temperature_celsius"
FORGED = {"job": "of-a-tenant", "class": "replace", "xid": "79", "gpu": "0", "UUID": "GPU-f", "reason": "xid"}


def prometheus_answer(
    expression: str, faults: Iterable[Fault], measured: Iterable[str], nodes: Iterable[str]
) -> Any:
    """For a query of the faults, or of the nodes that are ``measured``; all ``nodes`` are told of, too."""
    if FAULTS in expression:
        name, labels = FAULTS, [_series_labels(item) for item in faults]
    else:
        name, labels = MEASURED, [{"node": item} for item in measured]
    match = re.search(rf'{name}(?:{{job="([^"]*)"}})?', expression)
    assert match, expression
    all_labels = [*labels, *({**FORGED, "node": node} for node in nodes)]
    series = [item for item in all_labels if match[1] in (None, item.get("job", ""))]
    result = [{"metric": item, "value": [0, "1"]} for item in series]
    return {"status": "success", "data": {"resultType": "vector", "result": result}}


def _series_labels(fault: Fault) -> dict[str, str]:
    labels = {"node": fault.node, "gpu": fault.gpu, "UUID": fault.uuid, "xid": fault.xid}
    return {**labels, "class": fault.kind, "reason": fault.reason}


class Killed(BaseException):
    """The loop's process ended."""


class Simulation(World):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.reported_faults: list[tuple[Fault, str]] = []
        """Faults last told to the loop, and the id of the machine that has each."""
        self.last_fault: dict[str, float] = {}
        """When a fault of the node of this name was last told to the loop."""
        self.action_due: dict[str, float] = {}
        """By node uid, the working time at which its action must be complete."""
        self.finished: set[str] = set()
        """Nodes with a ticket."""
        self.excused: set[str] = set()
        """Nodes that a person takes for repaired."""
        self.stored_finished: set[str] = set()
        """Settled nodes about which the loop has had time to store that they are."""
        self.repaired: set[str] = set()
        """Nodes repaired since they were cordoned."""
        self.last_unmeasured: dict[str, float] = {}
        """When the loop was last told that GPUs of the node of this name are not measured."""
        self.step_due: dict[tuple[str, str], float] = {}
        """By what the loop must do to a node, the working time at which it must have."""
        self.working_time = 0.0
        self.failed_round = False
        self.cluster.before, self.cluster.after = self._before, self._after
        self.cluster.on_cordon, self.cluster.on_lift = self._on_cordon, self._on_lift
        self.cluster.on_write = self._on_write
        self.start()
        for _ in range(6):
            self._join(BURST)
            self._join(FIXED)

    def start(self) -> None:
        """A new process; its clock is the machine's at its start."""
        booted = self.now - self.random.random() * DAY_S
        self.clock_ahead += max(0.0, self.clock_offset - self.offset_at_start)
        self.offset_at_start = self.clock_offset
        self.clock: Callable[[], float] = health.steady_clock(
            lambda: self.now + self.clock_offset, lambda: self.now - booted
        )
        self.known_since.clear()
        self.loop = Loop(self.cluster, {**SETTINGS, "mode": self.mode}, reporting.Metrics())

    # What the API server does to the loop

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
        self._count_event("request failed")
        if self.random.random() < 0.05:
            raise Killed
        raise OSError("no answer")

    # What the loop does

    def _on_cordon(self, before: dict[str, Any], node: dict[str, Any]) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        assert self.last_fault.get(name, -DAY_S) >= self.joined_at[uid], f"{uid} was cordoned without a fault"
        old, new = (json.loads(item["metadata"]["annotations"].get(RECORD, "{}")) for item in (before, node))
        had_no_taint = all(item["key"] != TAINT for item in before["spec"].get("taints") or ())
        same = all(old.get(key) == new[key] for key in ("class", "faults"))
        assert had_no_taint or not same, f"day {self.now / DAY_S:.2f}: the record of {uid} was written again"
        self._use_budget(uid)
        self._clear_marks(node)
        self._require_action(uid)
        if self.mode == "cordon":
            self._mark_finished(name)

    def _on_lift(self, node: dict[str, Any]) -> None:
        name, uid = node["metadata"]["name"], node["metadata"]["uid"]
        for times in (self.last_fault, self.last_unmeasured):
            quiet = self.now - times.get(name, -DAY_S)
            assert quiet >= FADE_S, f"day {self.now / DAY_S:.2f}: returned after {quiet} s without a fault"
        assert uid in self.repaired, f"day {self.now / DAY_S:.2f}: {uid} was returned without a repair"
        self._clear_marks(node)
        self._count_event("returned")

    def _clear_marks(self, node: dict[str, Any]) -> None:
        for uids in (self.finished, self.excused, self.stored_finished, self.repaired):
            uids.discard(node["metadata"]["uid"])

    def _on_write(self, config_map: dict[str, Any]) -> None:
        if "closed" in config_map["data"]:
            return
        if "ticket.json" in config_map["data"]:
            name = json.loads(config_map["data"]["ticket.json"])["node"]
            day = f"day {self.now / DAY_S:.2f}"
            assert self._uid(name) not in self.stored_finished, f"{day}: {name} has its ticket"
            self._mark_finished(name)
            self._count_event("ticket")
        elif self.breaker_closing and RESET not in config_map["metadata"].get("annotations", {}):
            self.breaker_closing = False
            self._reset_budget()

    def _use_budget(self, uid: str) -> None:
        """Count the node against the budget: no more in any window."""
        start = self._clock_time() - HOUR_S
        uses = (*self.budget_uses, (self._clock_time(), uid))
        self.budget_uses = [item for item in uses if item[0] > start]
        before = [item for item in self.size_history if item[0] < start][-1:]
        during = [item for item in self.size_history if item[0] >= start]
        largest = max(size for _, size in before + during)
        assert len({uid for _, uid in self.budget_uses}) <= min(MAX_ACTIONS, max(1, int(0.2 * largest))), (
            f"cordoned at day {self.now / DAY_S:.2f}"
        )
        self._count_event("cordoned")

    def _forget(self, node: dict[str, Any]) -> None:
        self._clear_marks(node)
        for times in (self.action_due, self.known_since):
            times.pop(node["metadata"]["uid"], None)

    # A day

    def run(self, days: float) -> None:
        end = self.now + days * DAY_S
        with (
            mock.patch("infra.incluster.model._query", self._answer),
            mock.patch("infra.incluster.reporting.line"),
        ):
            while self.now < end:
                step = self.random.choice((15.0, 60.0, 240.0, 300.0))
                self.now += step
                self._run_others(step)
                self._run_round(step)

    def _answer(self, _: str, expression: str) -> Any:
        if self.now < self.silent_until:
            raise OSError("no answer")
        down = {name for name, item in self.machines.items() if item.exporter_down_until > self.now}
        self.last_unmeasured |= dict.fromkeys(down, self.now)
        self.reported = {key: item for key, item in self.reported.items() if item[1] > self.now}
        self.reported_faults = [
            (fault, machine_id) for fault, _, machine_id in self.reported.values() if fault.node not in down
        ]
        self.last_fault |= {fault.node: self.now for fault, _ in self.reported_faults}
        faults, measured = [fault for fault, _ in self.reported_faults], self.machines.keys() - down
        return prometheus_answer(expression, faults, measured, self.machines)

    def _run_round(self, step: float) -> None:
        self.failed_round = self.now < self.silent_until
        try:
            self.loop.run_round(self.clock())
        except Killed:
            self._count_event("killed")
            self.start()
        if self.failed_round:
            return
        self.working_time += step
        for name in self.machines:
            self.known_since.setdefault(self._uid(name), self.now)
        old = {uid for uid, since in self.known_since.items() if self.now - since > FADE_S}
        self.stored_finished |= (self.finished & old) - self.repaired
        breaker = self._breaker()
        for fault, machine_id in [] if breaker else self.reported_faults:
            machine = self.machines.get(fault.node)
            # Before that, it may be an earlier node's of that name.
            if machine and machine.id == machine_id and self._uid(fault.node) in old:
                self._require_action(self._uid(fault.node))
        for name in (breaker or {"withheld": []})["withheld"]:
            if name in self.machines and self.cluster.taint(name) is None:
                self.action_due.pop(self._uid(name), None)  # a person has to look
        for uid, due in self.action_due.items():
            assert self.working_time < due, f"day {self.now / DAY_S:.2f}: {uid} is forgotten"
        self._require_progress()

    def _require_progress(self) -> None:
        """A repaired node returns, and a node with a record has the taint, whoever removed it."""
        due = set()
        for name, machine in self.machines.items():
            uid = self._uid(name)
            quiet = self.now - max(self.last_fault.get(name, -DAY_S), self.last_unmeasured.get(name, -DAY_S))
            if uid in self.repaired and quiet >= FADE_S and machine.exporter_down_until < self.now:
                due.add((uid, "returned"))
            annotations = self.cluster.nodes_by_name[name]["metadata"]["annotations"]
            if RECORD in annotations and self.cluster.taint(name) is None:
                due.add((uid, "tainted"))
        self.step_due = {item: self.step_due.get(item, self.working_time + PATIENCE_S) for item in due}
        for (uid, step), deadline in self.step_due.items():
            assert self.working_time < deadline, f"day {self.now / DAY_S:.2f}: {uid} is not {step}"

    def _require_action(self, uid: str) -> None:
        if uid not in self.finished | self.excused:
            self.action_due.setdefault(uid, self.working_time + PATIENCE_S)

    def _mark_finished(self, name: str) -> None:
        self.action_due.pop(self._uid(name), None)
        self.finished.add(self._uid(name))

    def _excuse(self, name: str) -> None:
        self.action_due.pop(self._uid(name), None)
        self.excused.add(self._uid(name))

    def _mark_repaired(self, name: str) -> None:
        self.repaired.add(self._uid(name))
