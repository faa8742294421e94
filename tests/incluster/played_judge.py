from __future__ import annotations

import dataclasses
import json
from typing import Any

from infra.incluster import judge
from infra.incluster.judge import Fault, Node, Settings, State, Step

NOW = 1_800_000_000.0
CORDON = Settings(mode="cordon", budget=0.2, most=None, window_s=3600, settle_s=600)
REPLACE = dataclasses.replace(CORDON, mode="replace")
OBSERVE = dataclasses.replace(CORDON, mode="observe")


def fault(node: str, kind: str = "replace", xid: str = "79", gpu: str = "0") -> Fault:
    return Fault(node, gpu, f"GPU-{node}-{gpu}", xid, kind, "xid")


def node(name: str, **more: Any) -> Node:
    return Node(name, f"uid-{name}", NOW - 86400, "boot-1", missing="", **more)


def nodes(count: int) -> list[Node]:
    return [node(f"n{number:02}") for number in range(count)]


class Played:
    """Applies the loop's decisions at once, unless told to fail: at all, or after the node is cordoned."""

    def __init__(self, there: list[Node], declared: Settings = CORDON) -> None:
        self.there = {one.name: one for one in there}
        self.declared, self.state, self.quiet = declared, State(), dict[str, float]()
        self.done: list[tuple[float, Step]] = []

    def restart(self) -> None:
        self.quiet = {}
        self.state = State.of(json.loads(json.dumps(self.state.to_json())))

    def look(self, faults: list[Fault], now: float, fails: bool = False, halves: bool = False) -> list[Step]:
        there = list(self.there.values())
        unseen = {one.name for one in there if not one.measured}
        self.quiet = judge.listen(self.quiet, judge.names(there, self.state), faults, now, unseen)
        steps, self.state = judge.decide(self.declared, there, faults, self.state, self.quiet, now)
        for step in [] if fails else steps:
            self._carry_out(step, now, halves)
        return steps

    def _carry_out(self, step: Step, now: float, halves: bool) -> None:
        one = self.there[step.node]
        if step.at and not halves:
            self.done.append((now, step))
            self.state = judge.finished(self.state, step.at, step.node, now)
        if step.action in ("cordon", "ticket", "replace"):
            record = {"class": step.kind, "boot": one.boot, "faults": [fault.id for fault in step.faults]}
            one = dataclasses.replace(one, record=record, taint=step.kind, repaired=None)
        elif step.action == "lift":
            one = dataclasses.replace(one, record=None, taint=None, repaired=None)
        elif step.action == "restore":
            one = dataclasses.replace(one, taint=step.kind)
        self.there[one.name] = one

    def change(self, name: str, **more: Any) -> None:
        self.there[name] = dataclasses.replace(self.there[name], **more)


def actions(steps: list[Step]) -> list[tuple[str, str]]:
    return [(step.action, step.node) for step in steps]
