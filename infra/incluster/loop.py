"""The rounds of the health loop: ask, decide, store, act and report.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import json
import sys
import urllib.error
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # python3 -I does not search this folder
if TYPE_CHECKING:
    from infra.incluster import acting, asked, cluster, events, judge, proof, told
    from infra.incluster.cases import Node, Settings, State, Step
else:
    import acting
    import asked
    import cluster
    import events
    import judge
    import proof
    import told
    from cases import Settings, State

STATE = "gpu-health-state"
KEY = "state.json"
RESET = "gpuform.io/reset-breaker"
WORDS = ("observe", "withhold", "note", "wait")  # actions that are only reported

Json = dict[str, Any]


class Loop:
    """One loop; what it remembers between two rounds may be lost in a restart."""

    def __init__(
        self,
        server: cluster.Cluster,
        declared: Json,
        metrics: told.Metrics,
    ) -> None:
        self._cluster, self._metrics, self._hand = server, metrics, acting.Hand(server)
        self._prometheus: str = declared["prometheus"]
        self._pools: Json = declared["pools"]
        self._settings = Settings(
            mode=declared["mode"],
            budget=declared["budget"],
            most=declared["max"],
            window_s=declared["window_s"],
            settle_s=declared["settle_s"],
        )
        self._quiet: dict[str, float] = {}
        self._since: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def look(self, now: float) -> None:
        """One round; a failure is reported once and retried in the next round."""
        try:
            faults, measured = asked.faults(self._prometheus), asked.measured(self._prometheus)
        except asked.TROUBLE as error:
            self._quiet.clear()
            self._metrics.set(prometheus_up=0)
            self._once("prometheus", now, f"no answer from Prometheus, nothing is done: {_words(error)}")
            return
        self._metrics.set(prometheus_up=1)
        self._once("prometheus", now, "Prometheus answers")
        try:
            self._judge(faults, measured, now)
            self._once("cluster", now, "the API server answers")
        except cluster.TROUBLE as error:
            self._quiet.clear()
            self._once("cluster", now, f"nothing is done: {_words(error)}")

    def silent(self) -> None:
        """Discard the observations after a long gap between rounds."""
        self._quiet.clear()

    def _judge(self, faults: list[Any], measured: frozenset[str], now: float) -> None:
        seen = {
            one["metadata"]["name"]: one
            for one in self._cluster.nodes(proof.POOL)
            if one["metadata"]["labels"][proof.POOL] in self._pools
        }
        nodes = [
            replace(
                acting.read(
                    one,
                    self._pools[one["metadata"]["labels"][proof.POOL]],
                    self._since.setdefault(one["metadata"]["uid"], now),
                ),
                measured=name in measured,
            )
            for name, one in seen.items()
        ]
        self._since = {node.uid: node.since for node in nodes}
        kept = self._cluster.config_map(STATE) or self._empty()
        before = State.of(json.loads(kept["data"][KEY]))
        told_to = (kept["metadata"].get("annotations") or {}).pop(RESET, None)
        state = before if told_to is None else judge.reset(before)
        unseen = {node.name for node in nodes if not node.measured}
        self._quiet = judge.listen(self._quiet, judge.names(nodes, state), faults, now, unseen)
        steps, after = judge.decide(self._settings, nodes, faults, state, self._quiet, now)
        if told_to is not None or after != before or "resourceVersion" not in kept["metadata"]:
            kept = self._write(kept, after)
        self._tell_of_breaker(before, after, told_to, kept, now)
        self._figures(nodes, after, now)
        done = after
        for step in steps:
            if self._do(step, seen[step.node], now) and step.at:
                done = judge.finished(done, step.at, step.node, now)
        if done != after:
            self._write(kept, done)

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
                changed = isinstance(error, urllib.error.HTTPError) and error.code == cluster.CONFLICT
                result, why = "conflict" if changed else "failed", f"{why}; {_words(error)}"
            self._metrics.count(step.node, kind, step.action, result)
        faults = [fault.words for fault in step.faults]
        key, text = f"{step.action} {step.node}", f"{result} {why} {faults}"
        if self._said.get(key) != text or (result == "done" and step.action != "wait"):
            self._said[key] = text
            told.line(
                now,
                action=step.action,
                node=step.node,
                result=result,
                why=why,
                faults=faults,
                **{"class": kind},
            )
            if step.action in WORDS:
                self._metrics.count(step.node, kind, step.action, result)
            if result == "done":
                self._event(step.action, events.about_node(node), why, now)
        return result == "done"

    def _event(self, action: str, about: Json, message: str, now: float) -> None:
        """An event that cannot be written does not undo the action."""
        try:
            space = about.get("namespace", events.NODES)
            self._cluster.event(told.event(action, about, message, now, space))
        except cluster.TROUBLE as error:
            told.line(now, said=f"event not written: {_words(error)}")

    def _tell_of_breaker(
        self, before: State, after: State, told_to: str | None, kept: Json, now: float
    ) -> None:
        about = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": self._cluster.namespace}
        about |= {"name": STATE, "uid": kept["metadata"]["uid"]}
        if told_to is not None:
            self._breaker("close", about, f"closed by annotation: {told_to}", now)
        if after.breaker is not None and (before.breaker is None or told_to is not None):
            self._breaker("open", about, after.breaker["why"], now)

    def _breaker(self, action: str, about: Json, why: str, now: float) -> None:
        told.line(now, action=f"breaker-{action}", result="done", why=why)
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

    def _write(self, kept: Json, state: State) -> Json:
        text = json.dumps(state.to_json(), indent=1, sort_keys=True) + "\n"
        return self._cluster.write({**kept, "data": {KEY: text}})

    def _empty(self) -> Json:
        text = json.dumps(State().to_json())
        own = {"name": STATE, "namespace": self._cluster.namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": own, "data": {KEY: text}}

    def _once(self, subject: str, now: float, text: str) -> None:
        """Log what differs from the last text on the subject; a success only after a failure."""
        first = subject not in self._said
        if self._said.get(subject) != text:
            self._said[subject] = text
            if not (first and text.endswith("answers")):
                told.line(now, said=text)


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
