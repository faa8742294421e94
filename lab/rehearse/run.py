"""A rehearsal from start to end, on a control plane of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.checkout import stacks
from gpuform.checkout.listing import count_of
from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from gpuform.engine.files import Tools
from gpuform.stack.preflight.check import require_sdk
from gpuform.usage.queues import QueueOutcome, summarise
from gpuform.usage.rehearsal import JobResult, Load, Outcome, PendingPod, ScrapeResult, Step
from infra.config import price_list
from infra.model.base.namespaces import PLACEHOLDER
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from infra.plan import quotas
from lab.plane import ControlPlane, controlling
from lab.rehearse import after_placement, fidelity, foreign, nodes, pods, running, stack_file, workloads
from lab.rehearse.cluster import Cluster
from lab.rehearse.cost_report import CostReport, check_prices, price_source
from lab.rehearse.loads import LoadPlayer, load_player, unmet
from lab.rehearse.node_source import NodeSource, node_source
from lab.rehearse.options import Options
from lab.rehearse.plane import plane, wait_until_scraped
from lab.rehearse.scaled import at_minimum, install_keda, scaled_workloads
from lab.rehearse.watch import QUEUES, Snapshot, Watch, held_back, in_queue

Say = Callable[[str], None]


@dataclass
class StepClock:
    """The times of the steps so far."""

    say: Say
    steps: list[Step] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, also if it fails."""
        self.say(f"{name} ...")
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps.append(Step(name, time.monotonic() - began))


@dataclass(frozen=True)
class Rehearsal:
    """One rehearsal of one stack; of the checkout only the state folder is written."""

    paths: Paths
    tools: Tools
    stack: str
    options: Options = field(default_factory=Options)
    say: Say = print
    declared: Mapping[str, Any] | None = None
    """A checked environment in place of the stack file's."""

    def run(self) -> Outcome:
        """Run the rehearsal.

        Raises InputError for a wrong stack, workload or option before anything is started, and Failure if the
        rehearsal itself does not work. Pods that find no node are an outcome.
        """
        declared = self.declared or stack_file.read(stacks.stack_file(self.stack, self.paths))
        qps, file = self.options.qps, f"Pulumi.{self.stack}.yaml"
        full_env = workloads.environment(declared, file, self.options.workloads, scaled=bool(qps))
        scaled = scaled_workloads(full_env) if qps else ()
        env = at_minimum(full_env) if qps else full_env
        self.options.check(env)
        require_sdk(env)
        others = foreign.read(env, self.options.manifests)
        for line in warnings(env):
            self.say(f"warning: {line}")
        if others.errors:
            self.say(f"warning: --manifests: {count_of(others.errors, 'error')}; see `{self.check}`")
        now = (
            running.read(env, self.options.running, self.options.hash_names) if self.options.running else None
        )
        others = now.pods.beside(others) if now else others
        check_prices(env, price_list(env, self.paths.prices))
        counted = others.counted(env)
        if now and now.nodes:
            plan = nodes.RehearsedNodes(now.nodes)
        else:
            plan = nodes.simulated_nodes(env).rehearsed(counted)
        clock = StepClock(self.say)
        controllers = controlling.declared_controllers(full_env, self.options.real_operator)
        with ExitStack() as contexts:
            with clock.step("control plane"):
                paths = contexts.enter_context(
                    plane(self.paths, self.tools, self.stack, self.say, controllers)
                )
            if env.monitoring:
                with clock.step("monitoring programs and CRDs"):
                    ControlPlane(paths, self.tools).prepare_monitoring()
            cluster = contexts.enter_context(closing(Cluster(paths.kubeconfig, self.tools.path("kubectl"))))
            derived = stack_file.derive(declared, env, paths.kubeconfig)
            root = stack_file.write(self.paths.root, paths.state / "checkout", self.stack, derived)
            cluster.apply((*plan.manifests, *nodes.runtime_classes(env)))
            source = contexts.enter_context(node_source(counted, paths, self.tools, self.options, cluster))
            watch = Watch(cluster, env.name, by_claim=any(pool.by_claim for pool in env.pools))
            contexts.enter_context(watch.running())
            with clock.step("platform (pulumi up)"):
                deployed = replace(paths, root=root)
                Engine(deployed, self.tools, say=self.say, offline=True).up(self.stack, lambda event: None)
            player = None
            if scaled:
                with clock.step("KEDA"):
                    install_keda(full_env, paths, self.paths, self.tools)
                timeout_s, prices = self.options.timeout_s, price_list(full_env, paths.prices)
                player = contexts.enter_context(
                    load_player(full_env, scaled, cluster, watch, source, timeout_s, prices)
                )
            assumed = (*plan.assumptions, *others.notes)
            run = _Run(counted, paths, self, cluster, watch, source, clock, assumed, player)
            with clock.step("pods placed"):
                cluster.apply(player.manifests if player else pods.manifests(env))
                others.apply(cluster, self.check)
                run.wait_until_settled()
            return run.outcome()

    @property
    def check(self) -> str:
        """The command that judges the manifests of others."""
        files = " ".join(f"-f {path}" for path in self.options.manifests)
        return f"gpuform check {self.stack} {files}"


@dataclass(frozen=True)
class _Run:
    """The part of a rehearsal in which pods come and go."""

    env: Environment
    paths: Paths
    rehearsal: Rehearsal
    cluster: Cluster
    watch: Watch
    source: NodeSource
    clock: StepClock
    assumptions: tuple[str, ...]
    player: LoadPlayer | None = None

    @property
    def _plane(self) -> ControlPlane:
        return ControlPlane(self.paths, self.rehearsal.tools)

    def wait_until_settled(self) -> None:
        self.watch.wait_until(self._is_settled, self.source.quiet_s, self.rehearsal.options.timeout_s)

    def outcome(self) -> Outcome:
        options, env = self.rehearsal.options, self.env
        now = self.watch.observe()
        measured = self._scraped(now)
        pending = self._pending(env, now)
        costs = CostReport(env, price_list(env, self.paths.prices), self.source.paid())
        lives = list(self.watch.lives.values())
        pool_outcomes = tuple(
            costs.pool_outcome(pool, now, lives, self.source.unjoined(pool.name)) for pool in costs.pools
        )
        drawn = tuple(costs.draw_nodes(now))
        statuses = summarise(env, self.cluster.items(QUEUES), now.works)
        ended = self._complete_jobs(now, pending)
        later = self.watch.observe()
        if ended and pending:  # their queues may have admitted them since
            pending = self._pending(after_placement.without_jobs(env, ended), later)
        works = list(self.watch.queued.values())
        queues = tuple(
            QueueOutcome(queue, costs.queue_usd(queue.name, now), in_queue(queue.name, works), later.at)
            for queue in statuses
        )
        troubles = (*now.troubles(env), *self.source.troubles(), *after_placement.incomplete_jobs(ended))
        switched = [str(shortage) for shortage in options.shortages]
        switched += [f"reservation {name}: {left} left" for name, left in options.reservations_left]
        if options.interrupt_spot:
            with self.clock.step("spot interruption"):
                switched.append(self.source.interrupt(self.watch, options.timeout_s))
        shortened = self.player.start_scaling() if self.player else ()
        loads = tuple(self._play_loads())
        shrunk = None
        if options.shrink and now.workloads and not loads:
            with self.clock.step("half of the pods removed"):
                left = after_placement.without_jobs(env, ended)
                live = self.cluster, self.watch, self.source
                shrunk = after_placement.shrink(left, *live, costs.prices, options.timeout_s)
        costs = CostReport(env, costs.prices, self.source.paid())
        return Outcome(
            stack=self.rehearsal.stack,
            kind=env.cluster.kind,
            way=self.source.way,
            steps=tuple(self.clock.steps),
            pools=pool_outcomes,
            pods=pods.count_pods(env),
            placed=pods.count_placed(env, now.workloads, later.workloads),
            pending=pending,
            nodes=drawn,
            timeline=tuple(costs.timeline(list(self.watch.lives.values()))),
            simulated=fidelity.simulated_parts(self.source.way, env, self.assumptions, bool(loads)),
            real=fidelity.real_parts(
                self.source.way, self.player.env if self.player else env, self._plane.operator
            ),
            blind=fidelity.NOT_SHOWN.get(self.source.way, ()),
            prices=price_source(env, costs.prices),
            budget=env.cost.budget_usd_per_month if env.cost else None,
            seconds=self.watch.now.at,
            played=tuple(switched),
            refusals=self.source.refusals(),
            jobs=ended,
            queues=queues,
            shrink=shrunk,
            troubles=(*troubles, *unmet(loads)),
            rss_bytes=self._memory(),
            measured=measured,
            loads=loads,
            shortened=shortened,
        )

    def _play_loads(self) -> Iterator[Load]:
        for qps in self.rehearsal.options.qps:
            with self.clock.step(f"{qps:g} requests per second"):
                assert self.player
                yield self.player.play(qps)

    def _pending(self, env: Environment, now: Snapshot) -> tuple[PendingPod, ...]:
        return pods.pending_pods(
            env, now.workloads, pods.read_events(self.cluster), held_back(self.watch.queued.values())
        )

    def _complete_jobs(self, now: Snapshot, waiting: tuple[PendingPod, ...]) -> tuple[JobResult, ...]:
        """Run jobs to their end if any has started, and only queues hold others back."""
        started = {(pod.namespace, pod.workload) for pod in now.workloads}
        finite = after_placement.finite_jobs(self.env).keys()
        if not started & finite or any(not pod.queue for pod in waiting):
            return ()
        limits = self.source.quiet_s, self.rehearsal.options.timeout_s
        with self.clock.step("jobs complete"):
            return after_placement.complete_jobs(self.env, self.cluster, self.watch, *limits)

    def _scraped(self, now: Snapshot) -> ScrapeResult | None:
        if not self.env.monitoring:
            return None
        with self.clock.step("GPU metrics scraped"):
            names = [node.name for node in now.nodes if node.gpus]
            return wait_until_scraped(self._plane, names)

    def _is_settled(self, now: Snapshot) -> bool:
        """Whether pods and placeholders are placed, and every node is ready and offers what was planned."""
        placeholders = [pod for pod in now.pods if pod.namespace == PLACEHOLDER]
        if len(now.workloads) < pods.count_pods(self.env):
            return False
        if len(placeholders) < quotas.placeholder_pods(self.env):
            return False
        if not all(pod.is_placed for pod in (*now.workloads, *placeholders)):
            return False
        if any("Initialized" not in state for _, state in now.claims):
            return False
        return not any(now.troubles(self.env))

    def _memory(self) -> dict[str, int]:
        members = self._plane.status().members
        return {**{item.name: item.rss_bytes for item in members if item.running}, **self.source.memory()}
