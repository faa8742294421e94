from __future__ import annotations

import dataclasses
import json
from typing import Any

from infra.incluster import decisions
from infra.incluster.decisions import Fault, Node, Settings, State, Step

NOW = 1_800_000_000.0
CORDON = Settings(mode="cordon", budget=0.2, max_actions=None, window_s=3600, settle_s=600)
TICKET = dataclasses.replace(CORDON, mode="ticket")
OBSERVE = dataclasses.replace(CORDON, mode="observe")


def fault(node: str, kind: str = "replace", xid: str = "79", gpu: str = "0") -> Fault:
    return Fault(node, gpu, f"GPU-{node}-{gpu}", xid, kind, "xid")


def node(name: str, **more: Any) -> Node:
    return Node(name, f"uid-{name}", NOW - 86400, "boot-1", missing="", **more)


def nodes(count: int) -> list[Node]:
    return [node(f"n{number:02}") for number in range(count)]


class FakeLoop:
    """Applies the loop's decisions at once, unless told to fail: at all, or after the node is cordoned."""

    def __init__(self, nodes: list[Node], settings: Settings = CORDON) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.settings, self.state, self.quiet_since = settings, State(), dict[str, float]()
        self.completed: list[tuple[float, Step]] = []

    def restart(self) -> None:
        self.quiet_since = {}
        self.state = State.from_json(json.loads(json.dumps(self.state.to_json())))

    def run(
        self, faults: list[Fault], now: float, fails: bool = False, only_cordon: bool = False
    ) -> list[Step]:
        nodes = list(self.nodes.values())
        unmeasured = {node.name for node in nodes if not node.measured}
        self.quiet_since = decisions.update_quiet(
            self.quiet_since, decisions.observed_names(nodes, self.state), faults, now, unmeasured
        )
        steps, self.state = decisions.decide(self.settings, nodes, faults, self.state, self.quiet_since, now)
        for step in [] if fails else steps:
            self._execute(step, now, only_cordon)
        return steps

    def _execute(self, step: Step, now: float, only_cordon: bool) -> None:
        node = self.nodes[step.node]
        if step.at and not only_cordon:
            self.completed.append((now, step))
            self.state = decisions.mark_done(self.state, step.at, step.node, now)
        if step.action in ("cordon", "ticket"):
            record = {"class": step.kind, "boot": node.boot_id, "faults": [fault.id for fault in step.faults]}
            record |= {"action": step.action}
            node = dataclasses.replace(node, record=record, taint=step.kind, repaired=None)
        elif step.action == "lift":
            node = dataclasses.replace(node, record=None, taint=None, repaired=None)
        elif step.action == "restore":
            node = dataclasses.replace(node, taint=step.kind)
        self.nodes[node.name] = node

    def change_node(self, name: str, **more: Any) -> None:
        self.nodes[name] = dataclasses.replace(self.nodes[name], **more)


def taken(steps: list[Step]) -> list[tuple[str, str]]:
    return [(step.action, step.node) for step in steps]
