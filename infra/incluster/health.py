"""The health loop: keeps new pods off nodes with a broken GPU, and has the nodes replaced.

    health.py [--every SECONDS] [--account FOLDER] [--listen HOST:PORT] [--prometheus URL] [--server URL]
              SETTINGS

SETTINGS is a JSON file with the declared settings; the options are for runs outside a pod. Every round asks
Prometheus for the active faults and for the nodes with all GPUs measured, and nothing else; if Prometheus is
unreachable or its answer invalid, nothing is done. Actions are stored in a ConfigMap before a node is
touched: a loop that ends in between has counted them. Every action is an event, a line of JSON on stdout, and
counted at ``/metrics``.

``judge.py`` has the decisions. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

if "infra" not in sys.modules:  # in a pod, where the files are in one folder
    for package in ("infra", "infra.incluster"):
        sys.modules[package] = ModuleType(package)
        sys.modules[package].__path__ = [str(Path(__file__).parent)]
from infra.incluster import acting, cases, cluster, judge, proof, reporting
from infra.incluster.cases import Fault, Node, Settings, State, Step

SILENT = 4  # missed rounds after which earlier observations are discarded
STATE = "gpu-health-state"
KEY = "state.json"
RESET = "gpuform.io/reset-breaker"
WORDS = ("observe", "withhold", "note", "wait")  # actions that are only reported

Json = dict[str, Any]


class Loop:
    """One loop; what it remembers between two rounds may be lost in a restart."""

    def __init__(self, server: cluster.Cluster, declared: Json, metrics: reporting.Metrics) -> None:
        self._cluster, self._metrics, self._hand = server, metrics, acting.Hand(server)
        self._prometheus: str = declared["prometheus"]
        self._pools: Json = declared["pools"]
        mode, budget, most = declared["mode"], declared["budget"], declared["max"]
        self._settings = Settings(mode, budget, most, declared["window_s"], declared["settle_s"])
        self.quiet: dict[str, float] = {}
        """Since when each node has been without a fault; to be cleared after a long gap between rounds."""
        self._since: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def look(self, now: float) -> None:
        """One round; a failure is reported once and retried in the next round."""
        try:
            faults, measured = cases.faults(self._prometheus), cases.measured(self._prometheus)
        except cluster.TROUBLE as error:
            self.quiet.clear()
            self._metrics.set(prometheus_up=0)
            why = f"no answer from Prometheus, nothing is done: {cluster.words(error)}"
            return self._once("prometheus", now, why)
        self._metrics.set(prometheus_up=1)
        self._once("prometheus", now, "Prometheus answers")
        try:
            self._judge(faults, measured, now)
            self._once("cluster", now, "the API server answers")
        except cluster.TROUBLE as error:
            self.quiet.clear()
            self._once("cluster", now, f"nothing is done: {cluster.words(error)}")

    def _judge(self, faults: list[Fault], measured: frozenset[str], now: float) -> None:
        seen, nodes = dict[str, Json](), list[Node]()
        for one in self._cluster.nodes(proof.POOL):
            meta = one["metadata"]
            if meta["labels"][proof.POOL] in self._pools:
                seen[meta["name"]] = one
                since = self._since.setdefault(meta["uid"], now)
                pool = self._pools[meta["labels"][proof.POOL]]
                nodes.append(acting.read(one, pool, since, meta["name"] in measured))
        self._since = {node.uid: node.since for node in nodes}
        stored = self._cluster.config_map(STATE)
        new = "resourceVersion" not in stored["metadata"]
        before = State() if new else State.of(json.loads(stored["data"][KEY]))
        closed = (stored["metadata"].get("annotations") or {}).pop(RESET, None)
        state = before if closed is None else judge.reset(before)
        unseen = {node.name for node in nodes if not node.measured}
        self.quiet = judge.listen(self.quiet, judge.names(nodes, state), faults, now, unseen)
        steps, after = judge.decide(self._settings, nodes, faults, state, self.quiet, now)
        if closed is not None or after != before or new:
            stored = self._write(stored, after)
        self._tell_of_breaker(before, after, closed, stored, now)
        self._figures(nodes, after, now)
        done = after
        for step in steps:
            if self._do(step, seen[step.node], now) and step.at:
                done = judge.finished(done, step.at, step.node, now)
        if done != after:
            self._write(stored, done)

    def _do(self, step: Step, node: Json, now: float) -> bool:
        """Whether the step succeeded; steps that are only reported are reported once."""
        kind, why, result = step.kind, step.why, "done"
        if step.action in WORDS:
            if step.action == "observe":
                why = f"would act: {why}"
        else:
            try:
                why = "; ".join(part for part in (why, self._hand.do(step, node, now)) if part)
            except cluster.TROUBLE as error:
                result = "conflict" if cluster.refused(error, cluster.CONFLICT) else "failed"
                why = f"{why}; {cluster.words(error)}"
            self._metrics.count(step.node, kind, step.action, result)
        faults = [fault.words for fault in step.faults]
        key, text = f"{step.action} {step.node}", f"{result} {why} {faults}"
        if self._said.get(key) != text or (result == "done" and step.action != "wait"):
            self._said[key] = text
            own = {"action": step.action, "node": step.node, "class": kind}
            reporting.line(now, **own, result=result, why=why, faults=faults)
            if step.action in WORDS:
                self._metrics.count(step.node, kind, step.action, result)
            if result == "done":
                self._event(step.action, cluster.about_node(node), why, now)
        return result == "done"

    def _event(self, action: str, about: Json, message: str, now: float) -> None:
        """An event that cannot be written does not undo the action."""
        try:
            self._cluster.event(reporting.NAME, *reporting.REASONS[action], about, message, now)
        except cluster.TROUBLE as error:
            reporting.line(now, said=f"event not written: {cluster.words(error)}")

    def _tell_of_breaker(
        self, before: State, after: State, closed: str | None, stored: Json, now: float
    ) -> None:
        about = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": self._cluster.namespace}
        about |= {"name": STATE, "uid": stored["metadata"]["uid"]}
        said = {} if closed is None else {"close": f"closed by annotation: {closed}"}
        if after.breaker is not None and (before.breaker is None or closed is not None):
            said["open"] = after.breaker["why"]
        for action, why in said.items():
            reporting.line(now, action=f"breaker-{action}", result="done", why=why)
            self._event(action, about, why, now)

    def _figures(self, nodes: list[Node], after: State, now: float) -> None:
        self._metrics.set(
            breaker_open=float(after.breaker is not None),
            budget=judge.limit(self._settings, nodes, after),
            actions_in_window=len(after.actions),
            nodes=len(nodes),
            unhealthy_nodes=sum(node.taint is not None for node in nodes),
            last_look_timestamp_seconds=now,
        )

    def _write(self, stored: Json, state: State) -> Json:
        text = json.dumps(state.to_json(), indent=1, sort_keys=True) + "\n"
        return self._cluster.write(stored, {KEY: text})

    def _once(self, subject: str, now: float, text: str) -> None:
        """Log what differs from the last text on the subject; a success only after a failure."""
        first = subject not in self._said
        if self._said.get(subject) != text:
            self._said[subject] = text
            if not (first and text.endswith("answers")):
                reporting.line(now, said=text)


def steady(wall: Callable[[], float], elapsed: Callable[[], float]) -> Callable[[], float]:
    """Seconds since 1970 by ``wall`` at the start: a step of the machine's clock shortens no window."""
    begin = wall() - elapsed()
    return lambda: begin + elapsed()


def main() -> None:
    """Run rounds until SIGTERM."""
    args = cluster.arguments(15.0, "--listen", "--prometheus", "--server")
    declared: Json = args.settings
    declared["prometheus"] = args.prometheus or declared["prometheus"]
    host, _, port = (args.listen or declared["listen"]).rpartition(":")
    metrics, every = reporting.Metrics(), args.every
    loop = Loop(cluster.Cluster(args.account, args.server), declared, metrics)
    last, clock = time.monotonic(), steady(time.time, time.monotonic)

    def alive() -> bool:
        return bool(time.monotonic() - last < max(60.0, SILENT * every))

    reporting.serve((host, int(port)), metrics, alive)
    while True:
        if time.monotonic() - last > SILENT * every + cluster.TIMEOUT_S:
            loop.quiet.clear()
        loop.look(clock())
        last = time.monotonic()
        time.sleep(every)


if __name__ == "__main__":
    main()
