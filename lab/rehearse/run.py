"""A rehearsal from start to end, on a control plane of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from gpuform.engine.places import Tools
from gpuform.usage.queues import QueueOutcome, summarise
from gpuform.usage.rehearsal import Ended, Load, Outcome, Pending, Scraped, Step
from infra.config import price_list
from infra.model.environment import Environment
from infra.model.scheduling import PLACEHOLDER
from infra.plan import room
from lab.plane import ControlPlane, controlling
from lab.rehearse import after_placement, fidelity, nodes, pods, stack_file, workloads
from lab.rehearse.cluster import Cluster
from lab.rehearse.cost_report import CostReport, check_prices, price_source
from lab.rehearse.loads import Player, player, unmet
from lab.rehearse.node_source import NodeSource, node_source
from lab.rehearse.options import Options
from lab.rehearse.plane import plane, scraped
from lab.rehearse.scaled import fewest, followers, install
from lab.rehearse.watch import QUEUES, Snapshot, Watch, held, in_queue

Say = Callable[[str], None]


@dataclass
class Clock:
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

    def run(self) -> Outcome:
        """Run the rehearsal.

        Raises InputError for a wrong stack, workload or option before anything is started, and Failure if the
        rehearsal itself does not work. Pods that find no node are an outcome.
        """
        declared = stack_file.read(self.paths.root, self.stack)
        qps, file = self.options.qps, f"Pulumi.{self.stack}.yaml"
        whole = workloads.environment(declared, file, self.options.workloads, scaled=bool(qps))
        scaled = followers(whole) if qps else ()
        env = fewest(whole) if qps else whole
        self.options.check(env)
        for line in env.warnings:
            self.say(f"warning: {line}")
        check_prices(env, price_list(env))
        made = nodes.of(env).rehearsed(env)
        clock = Clock(self.say)
        with ExitStack() as held:
            with clock.step("control plane"):
                own = held.enter_context(
                    plane(self.paths, self.tools, self.stack, self.say, controlling.declared(whole))
                )
            if env.monitoring:
                with clock.step("monitoring programs and CRDs"):
                    ControlPlane(own, self.tools).monitored()
            cluster = held.enter_context(closing(Cluster(own.kubeconfig, self.tools.path("kubectl"))))
            derived = stack_file.derived(declared, env, own.kubeconfig)
            root = stack_file.write(self.paths.root, own.state / "checkout", self.stack, derived)
            cluster.apply((*made.manifests, *nodes.runtime_classes(env)))
            source = held.enter_context(node_source(env, own, self.tools, self.options, cluster))
            watch = Watch(cluster, env.name, by_claim=any(pool.by_claim for pool in env.pools))
            held.enter_context(watch.running())
            with clock.step("platform (pulumi up)"):
                self._up(own, root)
            plays = None
            if scaled:
                with clock.step("KEDA"):
                    install(whole, own, self.paths, self.tools)
                patience = self.options.timeout_s
                plays = held.enter_context(player(whole, scaled, cluster, watch, source, patience))
            return _Play(env, own, self, cluster, watch, source, clock, made.made_up, plays).played()

    def _up(self, own: Paths, root: Path) -> None:
        """Deploy the platform with the real engine and program; a stand-in replaces AWS."""
        paths = Paths(root=root, state=own.state, cache=own.cache)
        Engine(paths, self.tools, say=self.say, offline=True).up(self.stack, on_event=lambda event: None)


@dataclass(frozen=True)
class _Play:
    """The part of a rehearsal in which pods come and go."""

    env: Environment
    own: Paths
    asked: Rehearsal
    cluster: Cluster
    watch: Watch
    source: NodeSource
    clock: Clock
    made_up: tuple[str, ...]
    plays: Player | None = None

    def played(self) -> Outcome:
        options, env = self.asked.options, self.env
        quiet = self.source.quiet_s
        with self.clock.step("pods placed"):
            self.cluster.apply(self.plays.manifests if self.plays else pods.manifests(env))
            self.watch.until(self._settled, quiet, options.timeout_s)
        now = self.watch.look()
        measured = self._measured(now)
        waiting = self._pending(env, now)
        costs = CostReport(env, price_list(env), self.source.paid())
        lives = list(self.watch.lives.values())
        found = tuple(costs.pool(pool, now, lives, self.source.unjoined(pool.name)) for pool in costs.pools)
        drawn = tuple(costs.drawn(now))
        statuses = summarise(env, self.cluster.items(QUEUES), now.works)
        ended = self._ended(now, waiting, quiet)
        later = self.watch.look()
        if ended and waiting:  # their queues may have admitted them since
            waiting = self._pending(after_placement.without(env, ended), later)
        works = list(self.watch.queued.values())
        queues = tuple(
            QueueOutcome(q, costs.held(q.name, now), in_queue(q.name, works), later.at) for q in statuses
        )
        troubles = (*now.troubles(env), *self.source.troubles(), *after_placement.troubles(ended))
        switched = [str(one) for one in options.short]
        switched += [f"reservation {name}: {left} left" for name, left in options.used_up]
        if options.interrupt_spot:
            with self.clock.step("spot interruption"):
                switched.append(self.source.interrupt(self.watch, options.timeout_s))
        shortened = self.plays.begin() if self.plays else ()
        loads = tuple(self._loads())
        shrunk = None
        if options.shrink and now.workloads and not loads:
            with self.clock.step("half of the pods removed"):
                left = after_placement.without(env, ended)
                shrunk = after_placement.shrink(
                    left, self.cluster, self.watch, self.source, costs, quiet, options.timeout_s
                )
        costs = CostReport(env, costs.prices, self.source.paid())
        return Outcome(
            stack=self.asked.stack,
            kind=env.cluster.kind,
            way=self.source.way,
            steps=tuple(self.clock.steps),
            pools=found,
            pods=pods.wanted(env),
            placed=pods.placed(env, now.workloads, later.workloads),
            pending=waiting,
            nodes=drawn,
            timeline=tuple(costs.lines(list(self.watch.lives.values()))),
            simulated=fidelity.simulated(self.source.way, env, self.made_up, bool(loads)),
            real=fidelity.real(self.source.way, self.plays.env if self.plays else env),
            blind=fidelity.BLIND.get(self.source.way, ()),
            prices=price_source(env, costs.prices),
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

    def _loads(self) -> Iterator[Load]:
        for qps in self.asked.options.qps:
            with self.clock.step(f"{qps:g} requests per second"):
                assert self.plays
                yield self.plays.play(qps)

    def _pending(self, env: Environment, now: Snapshot) -> tuple[Pending, ...]:
        return pods.pending(env, now.workloads, pods.events(self.cluster), held(self.watch.queued.values()))

    def _ended(self, now: Snapshot, waiting: tuple[Pending, ...], quiet_s: float) -> tuple[Ended, ...]:
        """Run jobs to their end if any has started, and only queues hold others back."""
        started = {(pod.namespace, pod.workload) for pod in now.workloads}
        if not started & after_placement.ending(self.env).keys() or any(not one.queue for one in waiting):
            return ()
        with self.clock.step("jobs complete"):
            return after_placement.end(
                self.env, self.cluster, self.watch, quiet_s, self.asked.options.timeout_s
            )

    def _measured(self, now: Snapshot) -> Scraped | None:
        if not self.env.monitoring:
            return None
        with self.clock.step("GPU metrics scraped"):
            found = [node.name for node in now.nodes if node.gpus]
            return scraped(ControlPlane(self.own, self.asked.tools), found)

    def _settled(self, now: Snapshot) -> bool:
        """Whether pods and placeholders are placed, and every node is ready and offers what was planned."""
        there = now.workloads
        if len(there) < pods.wanted(self.env) or not all(pod.placed for pod in there):
            return False
        free = [pod for pod in now.pods if pod.namespace == PLACEHOLDER]
        if len(free) < room.pods(self.env) or not all(pod.placed for pod in free):
            return False
        if any("Initialized" not in state for _, state in now.claims):
            return False
        return not any(now.troubles(self.env))

    def _memory(self) -> dict[str, int]:
        members = ControlPlane(self.own, self.asked.tools).status().members
        return {**{one.name: one.rss_bytes for one in members if one.running}, **self.source.memory()}
