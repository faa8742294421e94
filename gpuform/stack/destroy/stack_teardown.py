"""The engine's destroy, which also ends where Helm lacks a release that the state has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gpuform.checkout.errors import Failure, InputError, OperationError
from gpuform.checkout.listing import abbreviate
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine, EngineFailure, Event, Result
from gpuform.engine.backend import project_name
from gpuform.engine.events import Step
from gpuform.engine.pending import RELEASE
from gpuform.kubernetes.cluster import Cluster
from gpuform.stack.cluster_access import declared_kubeconfig
from gpuform.stack.destroy import operator
from gpuform.stack.destroy.plan import ClusterContents, Plan, list_queued, read_contents
from gpuform.stack.destroy.state import State, forget_cluster_contents, retain_on_delete
from gpuform.stack.destroy.teardown import Options, Teardown
from gpuform.stack.recover import Recovery, Stack, locks, retry_after_cloud
from gpuform.stack.recover.state import is_same_state

_NOT_FOUND = "release: not found"
"""Helm's ErrReleaseNotFound (pkg/storage/driver)."""


def run_destroy(
    engine: Engine,
    stack: str,
    excluded: Sequence[str],
    on_event: Callable[[Event], None],
    say: Callable[[str], None],
) -> Result:
    """Destroy, and again without the releases that a killed run had uninstalled.

    The provider fails to uninstall them again, and its refresh does not forget them (its issue 2675).
    """
    try:
        return engine.destroy(stack, on_event, excluded)
    except EngineFailure as failure:
        if not (uninstalled := _uninstalled_releases(failure.result)):
            raise
        say(f"forgets {abbreviate([step.name for step in uninstalled])}: already uninstalled")
        forget(engine, stack, (step.urn for step in uninstalled))
        return run_destroy(engine, stack, excluded, on_event, say).after((failure.result,))


def forget(engine: Engine, stack: str, urns: Iterable[str]) -> None:
    """Let the engine's destroy remove these resources from the state without deleting them."""
    engine.restore(stack, retain_on_delete(engine.export(stack), urns))


def _uninstalled_releases(result: Result) -> list[Step]:
    unknown = {message.urn for message in result.messages if _NOT_FOUND in message.text}
    failed = [step for step in result.steps if (step.op, step.phase) == ("delete", "failed")]
    return [step for step in failed if step.type == RELEASE and step.urn in unknown]


Say = Callable[[str], None]


@dataclass
class StackTeardown:
    """One stack of a checkout; ``teardown`` knows its kind of cluster."""

    teardown: Teardown
    paths: Paths
    engine: Engine
    recoveries: Sequence[Recovery]
    say: Say = print
    _export: Mapping[str, Any] | None = field(default=None, repr=False)

    @property
    def stack(self) -> str:
        return self.teardown.stack

    @property
    def options(self) -> Options:
        return self.teardown.options

    def state(self) -> State:
        """The current state, cached; `require_unchanged` detects changes by other runs."""
        if self._export is None:
            self._export = self.engine.export(self.stack)
        return State.from_state(self._export)

    @property
    def _environment(self) -> str:
        return self.state().environment or self.teardown.env.name

    def require_unchanged(self) -> None:
        """Raise Failure if the state has changed since the plan, which the user has not approved then."""
        planned, self._export = self._export, None
        self.state()
        if planned is not None and not is_same_state(planned, self._export or {}):
            raise Failure(
                f"stack {self.stack}", "its state has changed since the plan", "check the plan again"
            )

    def require_free(self) -> None:
        """Raise Failure if the stack is locked: the engine, which runs after the cluster, checks too late.

        In backends that `recover` cannot read, only the engine checks.
        """
        if (store := self._lock_store()) is None:
            return
        for lock in locks.require_removable(self.stack, store.list_locks(), ()):
            raise Failure(
                f"stack {self.stack}",
                f"is locked by {lock.owner_name}",
                f"run 'gpuform recover {self.stack}'",
            )

    def hold_lock(self) -> AbstractContextManager[None]:
        """Hold the stack while a step runs that the engine does not do: no other run may begin."""
        store = self._lock_store()
        return nullcontext() if store is None else locks.hold_lock(self.stack, store)

    def _lock_store(self) -> locks.Store | None:
        env, _ = self.engine.environment(self.stack)
        try:
            return locks.open_store(env["PULUMI_BACKEND_URL"], project_name(self.paths.root), self.stack)
        except InputError:
            return None

    def run_engine_destroy(self, excluded: Sequence[str], on_event: Callable[[Event], None]) -> str:
        """The engine's destroy of all that is left except these URNs; returns its summary."""
        if kept_namespaces := self.kept_namespaces():
            forget(self.engine, self.stack, [self.state().namespaces[name] for name in kept_namespaces])
        self._export = None
        run = partial(run_destroy, self.engine, self.stack, excluded, on_event, self.say)
        try:
            return run().summary
        except EngineFailure as failure:
            if self.options.offline:
                raise
            stack = Stack(self.stack, self.paths, self.engine, self.recoveries)
            return retry_after_cloud(stack, failure, run, self.say).summary

    def plan(self) -> Plan:
        """Raises Failure if the cluster must be read and does not answer."""
        self.teardown.refuse_options()
        state, teardown = self.state(), self.teardown
        if teardown.has_cluster:
            teardown.require_account(state, self._export or {})
            if self.options.cluster_gone and teardown.created_cluster(state):
                self.say(teardown.require_gone(state))
        contents = self._read_contents(state) if teardown.has_cluster else self._read_queued(state)
        sweeper = teardown.leftovers(state)
        return Plan(
            self.stack,
            teardown.env.cluster.kind,
            teardown.steps,
            state.counts(),
            contents=contents,
            leftovers=sweeper.find() if sweeper else (),
            foreign_resources=sweeper.foreign(unused=True) if sweeper else (),
            kept_namespaces=tuple(
                f"{name} ({abbreviate(foreign)})" for name, foreign in self.kept_namespaces().items()
            ),
            purge=self.options.purge,
            notes=teardown.notes(),
            unfinished=bool(state.resources),
            cloud=teardown.cloud_name,
        )

    def kept_namespaces(self) -> dict[str, list[str]]:
        """Namespaces to keep on a cluster that others use, with what the stack did not create in them.

        Raises Failure if the cluster does not answer: it cannot be known then.
        """
        state, namespaces = self.state(), dict[str, list[str]]()
        if not self.teardown.keeps_namespaces or not state.namespaces:
            return namespaces
        with self._shared_cluster("namespaces") as cluster:
            for name in state.namespaces:
                if foreign := cluster.list_foreign(name, self._environment):
                    namespaces[name] = foreign
        return namespaces

    def _read_queued(self, state: State) -> ClusterContents:
        """What others have in the stack's queues; errors as `kept_namespaces`."""
        if not state.queues:
            return ClusterContents()
        with self._shared_cluster("queues") as cluster:
            return ClusterContents(queued=list_queued(cluster, state.queues, self._environment))

    @contextmanager
    def _shared_cluster(self, subject: str) -> Iterator[Cluster]:
        """The cluster that the stack did not create, to see what others have in its ``subject``."""
        access = self.state().kubernetes
        with Cluster(str(access.get("kubeconfig") or ""), access.get("context")) as cluster:
            try:
                yield cluster
            except OperationError as problem:
                fact = f"cannot be read ({problem}), so what others have in its {subject} is not known"
                raise Failure(f"cluster of {self.stack}", fact, "make it reachable") from None

    def _read_contents(self, state: State) -> ClusterContents:
        workloads = tuple(f"{item.kind} {item.namespace}/{item.name}" for item in state.workloads())
        with self.open_cluster() as cluster:
            if cluster is None:
                return ClusterContents()
            try:
                queued = list_queued(cluster, state.queues, self._environment)
                contents = read_contents(cluster, workloads, queued)
                if self.options.force:
                    self.teardown.refuse_force(cluster)
            except OperationError as problem:
                remedy = "run the same command again"
                raise Failure(f"cluster of {self.stack}", str(problem), remedy) from None
        return contents

    @contextmanager
    def open_cluster(self) -> Iterator[Cluster | None]:
        """The cluster that the stack created; None if it is gone, or never had anything in it.

        Raises Failure if it does not answer but has something that only it can delete.
        """
        state, teardown = self.state(), self.teardown
        created = teardown.created_cluster(state)
        if not created or (self.options.cluster_gone and not state.in_cluster):
            yield None
            return
        access = teardown.access(state, self.paths, self._export_with_secrets)
        if not access and not state.in_cluster:
            self.say("the state has no kubeconfig of the cluster, and no resources in it")
            yield None
            return
        with Cluster(access) as cluster:
            problem = cluster.unreachable_reason()
            if problem and not state.in_cluster:
                self.say(f"the cluster does not answer, but the stack has no resources in it: {problem}")
            elif self.options.cluster_gone and not problem:
                fact = f"the cluster answers at {created.endpoint}, so it is not gone"
                raise InputError("--cluster-gone", fact, "run without it")
            elif problem and not self.options.cluster_gone:
                raise Failure(
                    f"cluster {created.name} of {self.stack}",
                    f"does not answer ({problem}), and its contents can only be deleted through it",
                    f"reach it ({teardown.reach_hint}); if it is gone, run with --cluster-gone, "
                    f"which asks {teardown.prover} for proof first",
                )
            yield None if problem else cluster

    @contextmanager
    def open_operator_cluster(self) -> Iterator[Cluster | None]:
        """The cluster from which the stack's NVIDIA operator is to be uninstalled; None without one.

        None, too, if it does not answer, which the engine reports.
        """
        if not self.state().has_release(operator.RELEASE):
            yield None
            return
        with Cluster(*declared_kubeconfig(self.teardown.env, self.paths)) as cluster:
            yield None if cluster.unreachable_reason() else cluster

    def _export_with_secrets(self) -> Mapping[str, Any]:
        return self.engine.deployment(self.engine.environment(self.stack)[0], self.stack, show_secrets=True)

    def forget_cluster(self) -> None:
        """Remove everything that lay in a deleted cluster from the state, after proof only."""
        state = self.state()
        if self.teardown.created_cluster(state) is None or not state.in_cluster:
            return
        self.say(self.teardown.require_gone(state))
        self.engine.restore(self.stack, forget_cluster_contents(self.engine.export(self.stack)))
        self._export = None
        self.say(f"removed the {len(state.in_cluster)} resources in it from the state, releases included")

    def require_empty(self) -> None:
        state = self.state()
        if not state.is_empty:
            types = ", ".join(state.counts()) or "components"
            raise Failure(f"stack {self.stack}", f"still has {types}", "run the same command again")
