"""Runs a destroy plan; what differs between kinds of cluster is in `gpuform.stack.destroy.teardown`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.engine import EngineFailure
from gpuform.engine.events import Display
from gpuform.kubernetes.client import Unreachable
from gpuform.kubernetes.kinds import Kind
from gpuform.stack.destroy import cluster_teardown, operator
from gpuform.stack.destroy.plan import Plan
from gpuform.stack.destroy.stack_teardown import StackTeardown
from gpuform.stack.destroy.teardown import ENGINE_STEPS, Step
from gpuform.stack.destroy.waiting import StillExists


@dataclass
class Outcome:
    """What was done, by step: its name, its duration in seconds, and its result as text."""

    stack: str
    steps: list[tuple[str, float, str]] = field(default_factory=list)
    deleted_leftovers: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        steps = [
            {"name": name, "seconds": round(seconds, 1), "did": did} for name, seconds, did in self.steps
        ]
        return {"stack": self.stack, "steps": steps, "swept": self.deleted_leftovers}


class Destroy:
    """Runs a plan. A step looks at what exists now, so a run continues where another was killed."""

    def __init__(self, stack: StackTeardown, plan: Plan) -> None:
        self._stack, self._plan = stack, plan
        self._outcome = Outcome(stack.stack)

    def run(self) -> Outcome:
        """Raises Failure that names what still exists when a step's time is up, and what to do."""
        self._stack.require_free()
        self._stack.require_unchanged()
        if self._stack.options.cluster_gone:
            self._stack.forget_cluster()
        with ExitStack() as lock:
            self._run(lock)
        self._stack.require_empty()
        return self._outcome

    def _run(self, lock: ExitStack) -> None:
        """The steps; the stack is locked throughout, by this process or by the engine."""
        is_locked = False
        steps: dict[str, Callable[[Step], str]] = {
            "workloads": self._workloads,
            "load balancers": partial(self._run_in_cluster, cluster_teardown.delete_balancers),
            "volumes": self._volumes,
            "pools": partial(self._karpenter, cluster_teardown.POOLS),
            "classes": partial(self._karpenter, cluster_teardown.CLASSES),
            "cluster": lambda step: self._delete_down_to_cluster(),
            "leftovers": self._leftovers,
            "network": lambda step: self._network(),
            "stack": self._delete_stack,
        }
        with self._stack.open_cluster() as cluster:
            self._cluster = cluster
            for step in self._plan.steps:
                if step.name in ENGINE_STEPS:
                    lock.close()
                elif not is_locked:
                    lock.enter_context(self._stack.hold_lock())
                    self._stack.require_unchanged()
                is_locked = step.name not in ENGINE_STEPS
                began = time.monotonic()
                try:
                    did = steps[step.name](step)
                except Unreachable as problem:
                    remedy = "run the same command again"
                    raise Failure(f"cluster of {self._stack.stack}", str(problem), remedy) from None
                self._outcome.steps.append((step.name, time.monotonic() - began, did))
                self._say(step.name, did)

    def _say(self, name: str, text: str) -> None:
        self._stack.say(f"[{name}] {text}")

    def _timeout(self, step: Step) -> float:
        wait_s = self._stack.options.wait_s
        return wait_s if wait_s is not None else step.timeout_s or 0.0

    def _run_in_cluster(self, act: Callable[..., None], step: Step, *arguments: Any) -> str:
        if self._cluster is None:
            return "the cluster is gone"
        act(self._cluster, self._timeout(step), lambda text: self._say(step.name, text), *arguments)
        return "none left"

    def _workloads(self, step: Step) -> str:
        return self._run_in_cluster(cluster_teardown.delete_workloads, step, self._stack.state().workloads())

    def _volumes(self, step: Step) -> str:
        if self._stack.options.purge or self._cluster is None:
            return self._run_in_cluster(cluster_teardown.delete_volumes, step)
        cluster_teardown.keep_volumes(self._cluster)
        kept = self._plan.contents.volumes
        return f"kept: {', '.join(kept)}" if kept else "none with data"

    def _karpenter(self, kinds: tuple[Kind, ...], step: Step) -> str:
        force = self._force if self._stack.options.force else None
        return self._run_in_cluster(cluster_teardown.delete_karpenter_objects, step, kinds, force)

    def _force(self) -> None:
        """Terminate the nodes; checks again that no controller would."""
        try:
            if self._cluster is not None:
                self._stack.teardown.refuse_force(self._cluster)
        except InputError as error:
            raise Failure("destroy: NodePools", error.fact, error.remedy) from None
        self._stack.teardown.terminate_nodes(self._stack.state(), lambda text: self._say("pools", text))

    def _delete_down_to_cluster(self) -> str:
        if self._cluster is not None and not self._stack.options.purge:
            cluster_teardown.keep_volumes(self._cluster)  # volumes created while nodes were being removed
        state = self._stack.state()
        try:
            return self._run_engine(self._stack.teardown.excluded_urns(state))
        except EngineFailure as failure:
            raise self._stack.teardown.explain_failure(state, failure) from None

    def _leftovers(self, step: Step) -> str:
        teardown, state = self._stack.teardown, self._stack.state()
        teardown.require_sweepable(state)
        leftovers = teardown.leftovers(state)
        if leftovers is None:
            return teardown.nothing_found
        teardown.require_cluster_gone()
        try:
            deleted = leftovers.sweep(self._timeout(step), lambda text: self._say(step.name, text))
        except StillExists as timeout:
            remedy = "see what uses them, and run the same command again"
            raise Failure(f"destroy: leftovers at {teardown.cloud_name}", str(timeout), remedy) from None
        self._outcome.deleted_leftovers += [str(leftover) for leftover in deleted]
        return f"deleted {', '.join(map(str, deleted))}" if deleted else "none"

    def _network(self) -> str:
        self._stack.teardown.require_network_unused(self._stack.state())
        return self._run_engine(())

    def _delete_stack(self, step: Step) -> str:
        with self._stack.open_operator_cluster() as cluster:
            if cluster is not None:
                seconds = self._timeout(step) or operator.BOUND_S
                operator.require_finished(cluster, seconds, lambda text: self._say(step.name, text))
        return self._run_engine(())

    def _run_engine(self, excluded: tuple[str, ...]) -> str:
        if self._stack.state().has_only(excluded) if excluded else self._stack.state().is_empty:
            return "nothing left"

        display = Display(lambda line: self._stack.say(f"  {line}"))
        try:
            return self._stack.run_engine_destroy(excluded, display.take)
        finally:
            display.end()
