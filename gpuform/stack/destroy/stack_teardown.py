"""The stack to destroy: its state, locks, engine and cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpuform.checkout.errors import Failure, InputError, OperationError
from gpuform.checkout.listing import some
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, EngineFailure, Event
from gpuform.engine.backend import project
from gpuform.stack.cluster_access import cluster_of
from gpuform.stack.destroy import operator
from gpuform.stack.destroy.cluster import Cluster
from gpuform.stack.destroy.plan import ClusterContents, Plan, list_queued, read_contents
from gpuform.stack.destroy.state import Known, retaining, without_cluster
from gpuform.stack.destroy.teardown import Options, Teardown
from gpuform.stack.recover import Recovery, Stack, locks, run_to_the_end
from gpuform.stack.recover.state import same

Say = Callable[[str], None]


@dataclass
class StackTeardown:
    """One stack of a checkout; ``teardown`` knows its kind of cluster."""

    teardown: Teardown
    paths: Paths
    engine: Engine
    recoveries: Sequence[Recovery]
    say: Say = print
    _state: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def stack(self) -> str:
        return self.teardown.stack

    @property
    def options(self) -> Options:
        return self.teardown.options

    def known(self) -> Known:
        """The current state, cached; `require_unchanged` detects changes by other runs."""
        if self._state is None:
            self._state = self.engine.export(self.stack)
        return Known.of(self._state)

    @property
    def _environment(self) -> str:
        return self.known().environment or self.teardown.env.name

    def require_unchanged(self) -> None:
        """Raise Failure if the state has changed since the plan, which the user has not approved then."""
        planned, self._state = self._state, None
        self.known()
        if planned is not None and not same(planned, self._state or {}):
            raise Failure(
                f"stack {self.stack}", "its state has changed since the plan", "check the plan again"
            )

    def require_free(self) -> None:
        """Raise Failure if the stack is locked: the engine, which runs after the cluster, checks too late.

        In backends that `recover` cannot read, only the engine checks.
        """
        if (place := self._locks()) is None:
            return
        for lock in locks.require_removable(self.stack, place.locks(), ()):
            raise Failure(
                f"stack {self.stack}", f"is locked by {lock.named}", f"run 'gpuform recover {self.stack}'"
            )

    def holding(self) -> AbstractContextManager[None]:
        """Hold the stack while a step runs that the engine does not do: no other run may begin."""
        place = self._locks()
        return nullcontext() if place is None else locks.holding(self.stack, place)

    def _locks(self) -> locks.Store | None:
        env, _ = self.engine.environment(self.stack)
        try:
            return locks.store(env["PULUMI_BACKEND_URL"], project(self.paths.root), self.stack)
        except InputError:
            return None

    def engine_destroys(self, spared: Sequence[str], told: Callable[[Event], None]) -> str:
        """The engine's destroy of all that is left except these URNs; returns its summary."""
        if kept := self.kept():
            urns = [self.known().namespaces[name] for name in kept]
            self.engine.restore(self.stack, retaining(self.engine.export(self.stack), urns))
        self._state = None
        run = partial(self.engine.destroy, self.stack, told, spared)
        try:
            return run().summary
        except EngineFailure as failure:
            if self.options.offline:
                raise
            here = Stack(self.stack, self.paths, self.engine, self.recoveries)
            return run_to_the_end(here, failure, run, self.say).summary

    def plan(self) -> Plan:
        """Raises Failure if the cluster must be read and does not answer."""
        self.teardown.refuse_options()
        known, target = self.known(), self.teardown
        if target.has_cluster:
            target.require_place(known, self._state or {})
            if self.options.cluster_gone and target.made(known):
                self.say(target.require_gone(known))
        found = self._inside(known) if target.has_cluster else self._queued(known)
        left = target.leftovers(known)
        return Plan(
            self.stack,
            target.env.cluster.kind,
            target.steps,
            known.counts(),
            inside=found,
            swept=left.find() if left else (),
            left_alone=left.foreign(unused=True) if left else (),
            kept=tuple(f"{name} ({some(what)})" for name, what in self.kept().items()),
            purge=self.options.purge,
            notes=target.notes(),
            unfinished=bool(known.resources),
            where=target.where,
        )

    def kept(self) -> dict[str, list[str]]:
        """Namespaces to keep on a cluster that others use, with what the stack did not create in them.

        Raises Failure if the cluster does not answer: it cannot be known then.
        """
        known, found = self.known(), dict[str, list[str]]()
        if not self.teardown.keeps or not known.namespaces:
            return found
        with self._others("namespaces") as cluster:
            for name in known.namespaces:
                if theirs := cluster.foreign(name, self._environment):
                    found[name] = theirs
        return found

    def _queued(self, known: Known) -> ClusterContents:
        """What others have in the stack's queues; errors as ``kept``."""
        if not known.queues:
            return ClusterContents()
        with self._others("queues") as cluster:
            return ClusterContents(queued=list_queued(cluster, known.queues, self._environment))

    @contextmanager
    def _others(self, what: str) -> Iterator[Cluster]:
        """The cluster that the stack did not create, to see what others have in its ``what``."""
        access = self.known().kubernetes
        with Cluster(str(access.get("kubeconfig") or ""), access.get("context")) as cluster:
            try:
                yield cluster
            except OperationError as problem:
                fact = f"cannot be read ({problem}), so what others have in its {what} is not known"
                raise Failure(f"cluster of {self.stack}", fact, "make it reachable") from None

    def _inside(self, known: Known) -> ClusterContents:
        workloads = tuple(f"{one.kind} {one.namespace}/{one.name}" for one in known.workloads())
        with self.cluster() as cluster:
            if cluster is None:
                return ClusterContents()
            try:
                queued = list_queued(cluster, known.queues, self._environment)
                found = read_contents(cluster, workloads, queued)
                if self.options.force:
                    self.teardown.refuse_force(cluster)
            except OperationError as problem:
                remedy = "run the same command again"
                raise Failure(f"cluster of {self.stack}", str(problem), remedy) from None
        return found

    @contextmanager
    def cluster(self) -> Iterator[Cluster | None]:
        """The cluster that the stack created; None if it is gone, or never had anything in it.

        Raises Failure if it does not answer but has something that only it can delete.
        """
        known, target = self.known(), self.teardown
        made = target.made(known)
        if not made or (self.options.cluster_gone and not known.inside):
            yield None
            return
        access = target.access(known, self.paths, self._shown)
        if not access and not known.inside:
            self.say("the state has no kubeconfig of the cluster, and no resources in it")
            yield None
            return
        with Cluster(access) as cluster:
            problem = cluster.reachable()
            if problem and not known.inside:
                self.say(f"the cluster does not answer, but the stack has no resources in it: {problem}")
            elif self.options.cluster_gone and not problem:
                fact = f"the cluster answers at {made.endpoint}, so it is not gone"
                raise InputError("--cluster-gone", fact, "run without it")
            elif problem and not self.options.cluster_gone:
                raise Failure(
                    f"cluster {made.name} of {self.stack}",
                    f"does not answer ({problem}), and its contents can only be deleted through it",
                    f"reach it ({target.reach}); if it is gone, run with --cluster-gone, "
                    f"which asks {target.prover} for proof first",
                )
            yield None if problem else cluster

    @contextmanager
    def with_operator(self) -> Iterator[Cluster | None]:
        """The cluster from which the stack's NVIDIA operator is to be uninstalled; None without one.

        None, too, if it does not answer, which the engine reports.
        """
        if not self.known().has_release(operator.RELEASE):
            yield None
            return
        with Cluster(*cluster_of(self.teardown.env, self.paths)) as cluster:
            yield None if cluster.reachable() else cluster

    def _shown(self) -> Mapping[str, Any]:
        return self.engine.deployment(self.engine.environment(self.stack)[0], self.stack, show_secrets=True)

    def forget_cluster(self) -> None:
        """Remove everything that lay in a deleted cluster from the state, after proof only."""
        known = self.known()
        if self.teardown.made(known) is None or not known.inside:
            return
        self.say(self.teardown.require_gone(known))
        self.engine.restore(self.stack, without_cluster(self.engine.export(self.stack)))
        self._state = None
        self.say(f"removed the {len(known.inside)} resources in it from the state, releases included")

    def require_empty(self) -> None:
        known = self.known()
        if not known.empty:
            left = ", ".join(known.counts()) or "components"
            raise Failure(f"stack {self.stack}", f"still has {left}", "run the same command again")
