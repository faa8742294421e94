"""Moves and whole updates on a fake cluster: pods start and end in random order, runs are killed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.checkout.errors import OperationError
from gpuform.provider.workloads import rollout
from gpuform.provider.workloads.pair import ColourState, PairState
from gpuform.provider.workloads.rollout import Limits, MoveKind, next_move

pytestmark = pytest.mark.unit


@dataclass
class Colour:
    """One Deployment: declared replicas, and counts of its starting, ready and ending pods."""

    replicas: int = 0
    starting: int = 0
    ready: int = 0
    terminating: int = 0
    broken: bool = False

    @property
    def state(self) -> ColourState:
        return ColourState(
            self.replicas, self.starting + self.ready + self.terminating, self.ready, self.terminating
        )

    def step(self, random: Random) -> None:
        """One action of a controller, kubelet or runtime, or none."""
        action = random.randrange(4)
        if action == 0 and self.starting + self.ready < self.replicas:
            self.starting += 1
        elif action == 0 and self.starting + self.ready > self.replicas:
            # As the ReplicaSet controller does: pods that are not ready first.
            self.starting, self.ready = (
                (self.starting - 1, self.ready) if self.starting else (0, self.ready - 1)
            )
            self.terminating += 1
        elif action == 1 and self.starting and not self.broken:
            self.starting, self.ready = self.starting - 1, self.ready + 1
        elif action == 2 and self.terminating:
            self.terminating -= 1


@dataclass
class Simulation:
    old: Colour
    new: Colour
    limits: Limits
    random: Random
    switched: bool = False
    max_pods: int = 0
    served: list[int] = field(default_factory=list)

    def run(self, moves: int) -> bool:
        for _ in range(moves):
            move = next_move(self.old.state, self.new.state, self.switched, self.limits)
            if move.kind is MoveKind.DONE:
                return True
            if move.kind is MoveKind.SWITCH:
                self.switched = True
            elif move.kind is MoveKind.GROW:
                self.new.replicas = move.replicas
            elif move.kind is MoveKind.SHRINK:
                self.old.replicas = move.replicas
            for _ in range(self.random.randrange(4)):
                self.random.choice((self.old, self.new)).step(self.random)
                self._record()
        return False

    def _record(self) -> None:
        self.max_pods = max(self.max_pods, self.old.state.pods + self.new.state.pods)
        self.served.append((self.new if self.switched else self.old).ready)


@st.composite
def random_limits(draw: st.DrawFn) -> Limits:
    replicas = draw(st.integers(2, 9))
    return Limits(replicas, draw(st.integers(1, replicas)), draw(st.integers(1, replicas - 1)))


@given(random_limits(), st.integers(0, 2**32))
def test_it_ends_and_never_has_more_pods_than_replicas_nor_serves_with_none(
    limits: Limits, seed: int
) -> None:
    simulation = Simulation(Colour(limits.replicas, 0, limits.replicas), Colour(), limits, Random(seed))
    assert simulation.run(3000)
    assert simulation.max_pods <= limits.replicas
    assert min(simulation.served) >= min(limits.switch_at, limits.replicas - limits.switch_at)
    assert simulation.switched
    assert (simulation.old.state, simulation.new.ready) == (ColourState(), limits.replicas)


@given(random_limits(), st.integers(0, 2**32), st.integers(0, 200))
def test_broken_pods_stop_it_before_the_switch_and_it_goes_back(
    limits: Limits, seed: int, moves: int
) -> None:
    old, new = Colour(limits.replicas, 0, limits.replicas), Colour(broken=True)
    forward = Simulation(old, new, limits, Random(seed))
    assert not forward.run(moves)
    assert not forward.switched
    # The roles change, the Service was never switched.
    back = Simulation(new, old, limits, forward.random, switched=True)
    assert back.run(3000)
    assert max(forward.max_pods, back.max_pods) <= limits.replicas
    assert (new.state, old.ready) == (ColourState(), limits.replicas)
    assert min(back.served + forward.served, default=1) >= 1


@given(random_limits(), st.integers(0, 2**32), st.integers(0, 60))
def test_pods_that_break_after_the_switch_let_it_go_back_too(limits: Limits, seed: int, moves: int) -> None:
    old, new = Colour(limits.replicas, 0, limits.replicas), Colour()
    forward = Simulation(old, new, limits, Random(seed))
    forward.run(moves)
    new.broken = True
    back = Simulation(new, old, limits, forward.random, switched=not forward.switched)
    assert back.run(5000)
    assert back.max_pods <= limits.replicas
    assert min(back.served, default=1) >= 1
    assert old.ready == limits.replicas


@given(random_limits(), st.integers(1, 12), st.integers(0, 2**32))
def test_another_number_with_the_new_pods(limits: Limits, before: int, seed: int) -> None:
    simulation = Simulation(Colour(before, 0, before), Colour(), limits, Random(seed))
    assert simulation.run(5000)
    assert simulation.max_pods <= max(before, limits.replicas)
    assert simulation.new.ready == limits.replicas


@pytest.mark.parametrize(
    ("old", "new", "switched", "expected"),
    [
        (ColourState(4, 4, 4), ColourState(), False, (MoveKind.SHRINK, 3)),
        # The terminating pod still has its GPU.
        (ColourState(3, 4, 3), ColourState(), False, (MoveKind.WAIT, 0)),
        (ColourState(3, 3, 3), ColourState(), False, (MoveKind.GROW, 1)),
        # The next step starts when this pod is ready.
        (ColourState(3, 3, 3), ColourState(1, 1, 0), False, (MoveKind.WAIT, 0)),
        (ColourState(3, 3, 3), ColourState(1, 1, 1), False, (MoveKind.SHRINK, 2)),
        (ColourState(2, 2, 2), ColourState(2, 2, 2), False, (MoveKind.SWITCH, 0)),
        (ColourState(2, 2, 2), ColourState(2, 2, 2), True, (MoveKind.SHRINK, 0)),
        (ColourState(0, 1, 0), ColourState(2, 2, 2), True, (MoveKind.GROW, 3)),
        (ColourState(0, 0, 0), ColourState(4, 4, 3), True, (MoveKind.WAIT, 0)),
        (ColourState(0, 0, 0), ColourState(4, 4, 4), True, (MoveKind.DONE, 0)),
        (ColourState(0, 0, 0), ColourState(6, 6, 6), True, (MoveKind.GROW, 4)),
    ],
)
def test_one_move(old: ColourState, new: ColourState, switched: bool, expected: tuple[MoveKind, int]) -> None:
    move = next_move(old, new, switched, Limits(4, 1, 2))
    assert (move.kind, move.replicas) == expected


REPLICAS = 4


class Killed(BaseException):
    """The process ended here."""


@dataclass
class ClusterState:
    """The cluster's state: it outlives every run."""

    random: Random
    colours: dict[str, Colour] = field(default_factory=lambda: {"blue": Colour(), "green": Colour()})
    templates: dict[str, str] = field(default_factory=lambda: {"blue": "", "green": ""})
    live: str = ""
    source: str = ""
    now: float = 0.0
    max_pods: int = 0
    min_ready: int = REPLICAS

    def advance(self, seconds: float) -> None:
        """Advance time; random actions happen."""
        self.now += seconds
        for _ in range(6):
            self.random.choice(list(self.colours.values())).step(self.random)
            self.max_pods = max(self.max_pods, sum(colour.state.pods for colour in self.colours.values()))
            if self.live:
                self.min_ready = min(self.min_ready, self.colours[self.live].ready)


@dataclass
class FakePair:
    """The pair as a run sees it; a template that begins with ``bad`` never becomes ready."""

    cluster: ClusterState
    template: str
    dies_after: int = 10**9
    replicas: int = REPLICAS
    title: str = "Deployment default/w"

    def _count_call(self) -> None:
        self.dies_after -= 1
        if self.dies_after < 0:
            raise Killed
        self.cluster.advance(0)

    async def read_state(self) -> PairState:
        self._count_call()
        colours = {}
        for name, colour in self.cluster.colours.items():
            template = self.cluster.templates[name]
            full = REPLICAS if template else 0
            colours[name] = replace(colour.state, template=template, live_replicas=full)
        return PairState(colours, self.cluster.live, self.cluster.source)

    async def apply_deployment(self, colour: str, replicas: int) -> None:
        self._count_call()
        deployment = self.cluster.colours[colour]
        if self.cluster.templates[colour] != self.template:
            assert not deployment.state.pods, "its template changes while it has no pods"
        self.cluster.templates[colour] = self.template
        deployment.replicas, deployment.broken = replicas, self.template.startswith("bad")

    async def scale(self, colour: str, replicas: int) -> None:
        self._count_call()
        self.cluster.colours[colour].replicas = replicas

    async def apply_service(self, colour: str) -> None:
        self._count_call()
        self.cluster.live, self.cluster.source = colour, ""

    async def switch_service(self, colour: str) -> None:
        self._count_call()
        self.cluster.live = colour

    async def set_source(self, source: str | None) -> None:
        self._count_call()
        self.cluster.source = source or ""

    async def unready_reasons(self, colour: str) -> list[str]:
        return ["pod w: not ready"]


@dataclass
class FakeCall:
    cluster: ClusterState

    async def sleep(self, seconds: float) -> None:
        self.cluster.advance(seconds)

    async def status(self, text: str) -> None:
        pass

    info = warn = status

    def monotonic(self) -> float:
        return self.cluster.now


def run(
    cluster: ClusterState, template: str, step: int, switch_at: int, dies_after: int = 10**9
) -> str | None:
    """Run one update: the live colour or the failure message; None if it was killed."""
    call: Any = FakeCall(cluster)
    pair: Any = FakePair(cluster, template, dies_after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "time", call)
        try:
            return asyncio.run(rollout.Rollout(call, pair, step, switch_at, 120).run())
        except OperationError as error:
            return str(error)
        except Killed:
            return None


def started_cluster(seed: int, step: int, switch_at: int) -> ClusterState:
    cluster = ClusterState(Random(seed))
    assert run(cluster, "one", step, switch_at) == "blue"
    cluster.min_ready = REPLICAS  # before the first pod there was none
    return cluster


STEPS, SWITCHES = st.integers(1, REPLICAS), st.integers(1, REPLICAS - 1)
KILLS = st.lists(st.tuples(st.sampled_from(["one", "two", "three", "bad"]), st.integers(0, 60)), max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), STEPS, SWITCHES, KILLS)
def test_whatever_was_killed_the_next_run_gets_there(
    seed: int, step: int, switch_at: int, kills: list[tuple[str, int]]
) -> None:
    cluster = started_cluster(seed, step, switch_at)
    for template, after in kills:
        run(cluster, template, step, switch_at, after)
    live = run(cluster, "last", step, switch_at)
    assert live in cluster.colours, live
    assert (cluster.live, cluster.source, cluster.templates[live]) == (live, "", "last")
    assert cluster.colours[live].ready == REPLICAS
    assert sum(colour.state.pods for colour in cluster.colours.values()) == REPLICAS
    assert cluster.max_pods <= REPLICAS
    assert cluster.min_ready >= 1


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), STEPS, SWITCHES, st.lists(st.integers(0, 90), max_size=3))
def test_bad_pods_lead_back_even_when_the_way_back_is_killed(
    seed: int, step: int, switch_at: int, kills: list[int]
) -> None:
    cluster = started_cluster(seed, step, switch_at)
    for after in kills:
        run(cluster, "bad", step, switch_at, after)
    message = run(cluster, "bad", step, switch_at)
    assert message is not None
    assert message.endswith("(pod w: not ready); blue has its 4 replicas again, and the Service points to it")
    assert (cluster.live, cluster.source, cluster.colours["blue"].ready) == ("blue", "", REPLICAS)
    assert cluster.colours["green"].state.gpu_pods == 0
    assert cluster.max_pods <= REPLICAS
    assert cluster.min_ready >= 1
