"""Runs a destroy plan.

What differs between clouds is in `gpuform.stack.destroy.grounds`. On AWS the engine runs twice: a cluster's
leftovers in its VPC can be deleted only once the cluster is gone, and until then the VPC cannot be deleted
(AWS's provider would try for 20 minutes and fail). So the first run spares the network, then the leftovers
are deleted, then the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from gpuform.checkout.errors import Failure, InputError
from gpuform.engine import EngineFailure, Event
from gpuform.engine.events import line
from gpuform.kubernetes.client import Unreachable
from gpuform.stack.destroy import inside, operator
from gpuform.stack.destroy.cluster import Cluster
from gpuform.stack.destroy.leftovers import Leftovers
from gpuform.stack.destroy.plan import Plan
from gpuform.stack.destroy.site import Site
from gpuform.stack.destroy.steps import BY_ENGINE, Step
from gpuform.stack.destroy.waiting import StillThere, counted


@dataclass
class Outcome:
    """What was done, by step: its name, its duration in seconds, and its result as text."""

    stack: str
    steps: list[tuple[str, float, str]] = field(default_factory=list)
    swept: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        steps = [
            {"name": name, "seconds": round(seconds, 1), "did": did} for name, seconds, did in self.steps
        ]
        return {"stack": self.stack, "steps": steps, "swept": self.swept}


class Destroy:
    """Runs a plan. A step looks at what exists now, so a run continues where another was killed."""

    def __init__(self, site: Site, plan: Plan) -> None:
        self._site, self._plan = site, plan
        self._outcome = Outcome(site.stack)

    def run(self) -> Outcome:
        """Raises Failure that names what still exists when a step's time is up, and what to do."""
        self._site.require_free()
        self._site.require_unchanged()
        if self._site.options.cluster_gone:
            self._site.forget_cluster()
        with ExitStack() as held:
            self._run(held)
        self._site.require_empty()
        return self._outcome

    def _run(self, held: ExitStack) -> None:
        """The steps; the stack is locked throughout, by this process or by the engine."""
        ours = False
        steps: dict[str, Callable[[Step], str]] = {
            "workloads": self._workloads,
            "load balancers": self._balancers,
            "volumes": self._volumes,
            "pools": self._pools,
            "classes": self._classes,
            "cluster": lambda step: self._to_the_cluster(),
            "leftovers": self._leftovers,
            "network": lambda step: self._network(),
            "stack": self._stack,
        }
        with self._site.cluster() as cluster:
            self._cluster = cluster
            for step in self._plan.steps:
                if step.name in BY_ENGINE:
                    held.close()
                elif not ours:
                    held.enter_context(self._site.holding())
                    self._site.require_unchanged()
                ours = step.name not in BY_ENGINE
                began = time.monotonic()
                try:
                    did = steps[step.name](step)
                except Unreachable as problem:
                    remedy = "run the same command again"
                    raise Failure(f"cluster of {self._site.stack}", str(problem), remedy) from None
                self._outcome.steps.append((step.name, time.monotonic() - began, did))
                self._say(step.name, did)

    def _say(self, name: str, text: str) -> None:
        self._site.say(f"[{name}] {text}")

    def _bound(self, step: Step) -> float:
        asked = self._site.options.wait_s
        return asked if asked is not None else step.bound_s or 0.0

    def _inside(self, step: Step, act: Callable[[Cluster, float, Callable[[str], None]], None]) -> str:
        if self._cluster is None:
            return "the cluster is gone"
        act(self._cluster, self._bound(step), lambda text: self._say(step.name, text))
        return "none left"

    def _workloads(self, step: Step) -> str:
        declared = self._site.known().workloads()
        return self._inside(
            step, lambda cluster, seconds, say: inside.delete_workloads(cluster, declared, seconds, say)
        )

    def _balancers(self, step: Step) -> str:
        return self._inside(step, inside.delete_balancers)

    def _volumes(self, step: Step) -> str:
        if self._site.options.purge or self._cluster is None:
            return self._inside(step, inside.delete_volumes)
        inside.keep_volumes(self._cluster)
        kept = self._plan.inside.volumes
        return f"kept: {', '.join(kept)}" if kept else "none with data"

    def _pools(self, step: Step) -> str:
        force = self._force if self._site.options.force else None
        return self._inside(
            step, lambda cluster, seconds, say: inside.delete_pools(cluster, seconds, say, force)
        )

    def _classes(self, step: Step) -> str:
        force = self._force if self._site.options.force else None
        return self._inside(
            step, lambda cluster, seconds, say: inside.delete_classes(cluster, seconds, say, force)
        )

    def _force(self) -> None:
        """Terminate the instances that Karpenter would have; checks again that it does not run."""
        try:
            self._site.refuse_force(self._cluster)
        except InputError as error:
            raise Failure("destroy: NodePools", error.fact, error.remedy) from None
        leftovers = self._site.leftovers()
        if not isinstance(leftovers, Leftovers):
            self._say("pools", "--force: AWS is not queried, so no instance is terminated")
            return
        found = leftovers.instances(of_karpenter=True)
        for one in found:
            self._say("pools", f"--force: terminates {one}")
        leftovers.end(found)

    def _to_the_cluster(self) -> str:
        if self._cluster is not None and not self._site.options.purge:
            inside.keep_volumes(self._cluster)  # volumes created while nodes were being removed
        known = self._site.known()
        try:
            return self._engine(self._site.ground.spared(known))
        except EngineFailure as failure:
            raise self._site.ground.blamed(known, failure) from None

    def _leftovers(self, step: Step) -> str:
        ground = self._site.ground
        ground.require_sweepable(self._site.known())
        leftovers = self._site.leftovers()
        if leftovers is None:
            return ground.nothing
        ground.refuse_living()
        try:
            taken = leftovers.sweep(self._bound(step), lambda text: self._say(step.name, text))
        except StillThere as still:
            remedy = "see what uses them, and run the same command again"
            raise Failure(f"destroy: leftovers at {ground.where}", str(still), remedy) from None
        self._outcome.swept += [str(one) for one in taken]
        return f"deleted {', '.join(map(str, taken))}" if taken else "none"

    def _network(self) -> str:
        leftovers = self._site.leftovers()
        foreign = leftovers.foreign() if leftovers is not None else ()
        if foreign:
            raise Failure(
                f"VPC of {self._site.stack}",
                "the cluster is gone, but its network is blocked by "
                f"{counted(len(foreign), 'network interface')} not of this stack: "
                f"{'; '.join(f'{one.id} ({one.why})' for one in foreign)}",
                "delete them, or what uses them, and run the same command again",
            )
        return self._engine(())

    def _stack(self, step: Step) -> str:
        with self._site.with_operator() as cluster:
            if cluster is not None:
                seconds = self._bound(step) or operator.BOUND_S
                operator.require_finished(cluster, seconds, lambda text: self._say(step.name, text))
        return self._engine(())

    def _engine(self, spared: tuple[str, ...]) -> str:
        if self._site.known().only(spared) if spared else self._site.known().empty:
            return "nothing left"

        def told(event: Event) -> None:
            if text := line(event):
                self._site.say(f"  {text}")

        return self._site.engine_destroys(spared, told)
