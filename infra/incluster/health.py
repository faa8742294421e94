"""The health loop: keeps new pods off nodes with a broken GPU, and writes tickets.

    health.py [--every SECONDS] [--account FOLDER] [--listen HOST:PORT] [--prometheus URL] [--server URL]
              SETTINGS

SETTINGS is a JSON file with the declared settings; the options are for runs outside a pod. Every round asks
Prometheus for the active faults and for the nodes with all GPUs measured, and nothing else; if Prometheus is
unreachable or its answer invalid, nothing is done. Actions are stored in a ConfigMap before a node is
touched: a loop that ends in between has counted them. Every action is an event, a line of JSON on stdout, and
counted at ``/metrics``.

``decisions.py`` has the decisions. Standard library only, Python 3.11 or newer.
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
from infra.incluster import actions, cluster, decisions, model, proof, reporting
from infra.incluster.model import Fault, Node, Settings, State, Step

MAX_MISSED_ROUNDS = 4  # missed rounds after which earlier observations are discarded
STATE = "gpu-health-state"
KEY = "state.json"
RESET = "gpuform.io/reset-breaker"
REPORT_ONLY = ("observe", "withhold", "note", "wait")  # actions that are only reported

Json = dict[str, Any]


class Loop:
    """One loop; what it remembers between two rounds may be lost in a restart."""

    def __init__(self, server: cluster.Cluster, declared: Json, metrics: reporting.Metrics) -> None:
        self._cluster, self._metrics, self._actions = server, metrics, actions.NodeActions(server)
        self._prometheus: str = declared["prometheus"]
        self._secret = Path(declared["secret"]) if "secret" in declared else None
        self._pools: Json = declared["pools"]
        mode, budget, max_actions = declared["mode"], declared["budget"], declared["max"]
        self._settings = Settings(mode, budget, max_actions, declared["window_s"], declared["settle_s"])
        self.quiet_since: dict[str, float] = {}
        """Since when each node has been without a fault; to be cleared after a long gap between rounds."""
        self._first_seen: dict[str, float] = {}
        self._logged: dict[str, str] = {}

    def run_round(self, now: float) -> None:
        """One round; a failure is reported once and retried in the next round."""
        try:
            faults = model.get_faults(self._prometheus, self._secret)
            measured = model.get_measured_nodes(self._prometheus, self._secret)
        except cluster.ERRORS as error:
            self.quiet_since.clear()
            self._metrics.set(prometheus_up=0)
            message = f"no answer from Prometheus, nothing is done: {cluster.describe_error(error)}"
            return self._log_change("prometheus", now, message)
        self._metrics.set(prometheus_up=1)
        self._log_change("prometheus", now, "Prometheus answers")
        try:
            self._decide(faults, measured, now)
            self._log_change("cluster", now, "the API server answers")
        except cluster.ERRORS as error:
            self.quiet_since.clear()
            self._log_change("cluster", now, f"nothing is done: {cluster.describe_error(error)}")

    def _decide(self, faults: list[Fault], measured: frozenset[str], now: float) -> None:
        objects, nodes = dict[str, Json](), list[Node]()
        for item in self._cluster.nodes(proof.POOL):
            meta = item["metadata"]
            if meta["labels"][proof.POOL] in self._pools:
                objects[meta["name"]] = item
                since = self._first_seen.setdefault(meta["uid"], now)
                pool = self._pools[meta["labels"][proof.POOL]]
                nodes.append(actions.read_node(item, pool, since, meta["name"] in measured))
        self._first_seen = {node.uid: node.first_seen for node in nodes}
        config_map = self._cluster.config_map(STATE)
        new = "resourceVersion" not in config_map["metadata"]
        before = State() if new else State.from_json(json.loads(config_map["data"][KEY]))
        reset_reason = (config_map["metadata"].get("annotations") or {}).pop(RESET, None)
        state = before if reset_reason is None else decisions.reset_breaker(before)
        unmeasured = {node.name for node in nodes if not node.measured}
        names = decisions.observed_names(nodes, state)
        self.quiet_since = decisions.update_quiet(self.quiet_since, names, faults, now, unmeasured)
        steps, after = decisions.decide(self._settings, nodes, faults, state, self.quiet_since, now)
        if reset_reason is not None or after != before or new:
            config_map = self._write(config_map, after)
        self._report_breaker(before, after, reset_reason, config_map, now)
        self._set_metrics(nodes, after, now)
        finished = after
        for step in steps:
            if self._execute(step, objects[step.node], now) and step.at:
                finished = decisions.mark_done(finished, step.at, step.node, now)
        if finished != after:
            self._write(config_map, finished)

    def _execute(self, step: Step, node: Json, now: float) -> bool:
        """Whether the step succeeded; steps that are only reported are reported once."""
        kind, message, result = step.kind, step.reason, "done"
        if step.action in REPORT_ONLY:
            if step.action == "observe":
                message = f"would act: {message}"
        else:
            try:
                details = self._actions.execute(step, node, now)
                message = "; ".join(part for part in (message, details) if part)
            except cluster.ERRORS as error:
                result = "conflict" if cluster.has_status(error, cluster.CONFLICT) else "failed"
                message = f"{message}; {cluster.describe_error(error)}"
            self._metrics.count(step.node, kind, step.action, result)
        faults = [fault.text for fault in step.faults]
        key, text = f"{step.action} {step.node}", f"{result} {message} {faults}"
        if self._logged.get(key) != text or (result == "done" and step.action != "wait"):
            self._logged[key] = text
            fields = {"action": step.action, "node": step.node, "class": kind}
            reporting.line(now, **fields, result=result, why=message, faults=faults)
            if step.action in REPORT_ONLY:
                self._metrics.count(step.node, kind, step.action, result)
            if result == "done":
                self._create_event(step.action, cluster.node_reference(node), message, now)
        return result == "done"

    def _create_event(self, action: str, involved: Json, message: str, now: float) -> None:
        """An event that cannot be written does not undo the action."""
        try:
            self._cluster.create_event(reporting.NAME, *reporting.REASONS[action], involved, message, now)
        except cluster.ERRORS as error:
            reporting.line(now, said=f"event not written: {cluster.describe_error(error)}")

    def _report_breaker(
        self, before: State, after: State, reset_reason: str | None, config_map: Json, now: float
    ) -> None:
        involved = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": self._cluster.namespace}
        involved |= {"name": STATE, "uid": config_map["metadata"]["uid"]}
        messages = {} if reset_reason is None else {"close": f"closed by annotation: {reset_reason}"}
        if after.breaker is not None and (before.breaker is None or reset_reason is not None):
            messages["open"] = after.breaker["why"]
        for action, message in messages.items():
            reporting.line(now, action=f"breaker-{action}", result="done", why=message)
            self._create_event(action, involved, message, now)

    def _set_metrics(self, nodes: list[Node], after: State, now: float) -> None:
        self._metrics.set(
            breaker_open=float(after.breaker is not None),
            budget=decisions.action_limit(self._settings, nodes, after),
            actions_in_window=len(after.actions),
            nodes=len(nodes),
            unhealthy_nodes=sum(node.taint is not None for node in nodes),
            last_look_timestamp_seconds=now,
        )

    def _write(self, config_map: Json, state: State) -> Json:
        text = json.dumps(state.to_json(), indent=1, sort_keys=True) + "\n"
        return self._cluster.write(config_map, {KEY: text})

    def _log_change(self, subject: str, now: float, text: str) -> None:
        """Log what differs from the last text on the subject; a success only after a failure."""
        first = subject not in self._logged
        if self._logged.get(subject) != text:
            self._logged[subject] = text
            if not (first and text.endswith("answers")):
                reporting.line(now, said=text)


def steady_clock(wall: Callable[[], float], elapsed: Callable[[], float]) -> Callable[[], float]:
    """Seconds since 1970 by ``wall`` at the start: a step of the machine's clock shortens no window."""
    start = wall() - elapsed()
    return lambda: start + elapsed()


def main() -> None:
    """Run rounds until SIGTERM."""
    args = cluster.parse_arguments(15.0, "--listen", "--prometheus", "--server")
    declared: Json = args.settings
    declared["prometheus"] = args.prometheus or declared["prometheus"]
    host, _, port = (args.listen or declared["listen"]).rpartition(":")
    metrics, interval = reporting.Metrics(), args.every
    loop = Loop(cluster.Cluster(args.account, args.server), declared, metrics)
    last_round, clock = time.monotonic(), steady_clock(time.time, time.monotonic)

    def is_alive() -> bool:
        return bool(time.monotonic() - last_round < max(60.0, MAX_MISSED_ROUNDS * interval))

    reporting.serve((host, int(port)), metrics, is_alive)
    while True:
        if time.monotonic() - last_round > MAX_MISSED_ROUNDS * interval + cluster.TIMEOUT_S:
            loop.quiet_since.clear()
        loop.run_round(clock())
        last_round = time.monotonic()
        time.sleep(interval)


if __name__ == "__main__":
    main()
