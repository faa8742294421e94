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


class Killed(BaseException):
    """The process ended here."""


@dataclass
class ClusterState:
    """It outlives every run; ``full`` are the replicas of each colour when it is live."""

    random: Random
    colours: dict[str, Colour] = field(default_factory=lambda: {"blue": Colour(), "green": Colour()})
    templates: dict[str, str] = field(default_factory=lambda: {"blue": "", "green": ""})
    full: dict[str, int] = field(default_factory=lambda: {"blue": 0, "green": 0})
    live: str = ""
    source: str = ""
    now: float = 0.0
    max_pods: int = 0
    min_ready: int = 99

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
    """The pair as a run sees it.

    Pods of the template ``bad`` do not get ready, those of ``late`` only before the switch.
    """

    cluster: ClusterState
    template: str
    replicas: int
    dies_after: int = 10**9
    title: str = "Deployment default/w"

    def _count_call(self) -> None:
        self.dies_after -= 1
        if self.dies_after < 0:
            raise Killed
        self.cluster.advance(0)

    async def read_state(self) -> PairState:
        self._count_call()
        states = {
            name: replace(
                colour.state, template=self.cluster.templates[name], live_replicas=self.cluster.full[name]
            )
            for name, colour in self.cluster.colours.items()
        }
        return PairState(states, self.cluster.live, self.cluster.source)

    async def apply_deployment(self, colour: str, replicas: int) -> None:
        self._count_call()
        deployment = self.cluster.colours[colour]
        if self.cluster.templates[colour] != self.template:
            assert not deployment.state.pods, "its template changes while it has no pods"
        self.cluster.templates[colour], self.cluster.full[colour] = self.template, self.replicas
        deployment.replicas, deployment.broken = replicas, self._is_broken(colour)

    def _is_broken(self, colour: str) -> bool:
        template = self.cluster.templates[colour]
        return template == "bad" or (template == "late" and colour == self.cluster.live)

    async def scale(self, colour: str, replicas: int) -> None:
        self._count_call()
        self.cluster.colours[colour].replicas = replicas

    async def apply_service(self, colour: str) -> None:
        self._count_call()
        self.cluster.live, self.cluster.source = colour, ""

    async def switch_service(self, colour: str) -> None:
        self._count_call()
        self.cluster.live = colour
        self.cluster.colours[colour].broken = self._is_broken(colour)

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


def run(cluster: ClusterState, template: str, limits: Limits, dies_after: int = 10**9) -> str | None:
    """Run one update: the live colour or the failure message; None if it was killed."""
    call: Any = FakeCall(cluster)
    pair: Any = FakePair(cluster, template, limits.replicas, dies_after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout, "time", call)
        try:
            return asyncio.run(rollout.Rollout(call, pair, limits.step, limits.switch_at, 120).run())
        except OperationError as error:
            return str(error)
        except Killed:
            return None


def started_cluster(seed: int, limits: Limits) -> ClusterState:
    cluster = ClusterState(Random(seed))
    assert run(cluster, "one", limits) == "blue"
    cluster.max_pods, cluster.min_ready = 0, 99  # before the first pod there was none
    return cluster


@st.composite
def random_limits(draw: st.DrawFn) -> Limits:
    replicas = draw(st.integers(2, 9))
    return Limits(replicas, draw(st.integers(1, replicas)), draw(st.integers(1, replicas - 1)))


SEEDS = st.integers(0, 2**32)
TEMPLATES = st.sampled_from(["one", "two", "three", "bad", "late"])


@given(random_limits(), SEEDS)
def test_an_update_never_has_more_pods_than_replicas_nor_serves_with_fewer_than_promised(
    limits: Limits, seed: int
) -> None:
    cluster = started_cluster(seed, limits)
    assert run(cluster, "two", limits) == "green"
    assert (cluster.colours["blue"].state, cluster.colours["green"].ready) == (ColourState(), limits.replicas)
    assert cluster.max_pods <= limits.replicas
    assert cluster.min_ready >= min(limits.switch_at, limits.replicas - limits.switch_at)


@given(random_limits(), st.integers(1, 12), SEEDS)
def test_an_update_with_another_number_of_replicas_ends(limits: Limits, before: int, seed: int) -> None:
    cluster = started_cluster(seed, replace(limits, replicas=before))
    assert run(cluster, "two", limits) == "green"
    assert cluster.max_pods <= max(before, limits.replicas)
    assert cluster.colours["green"].ready == limits.replicas


@settings(max_examples=150)
@given(SEEDS, random_limits(), st.lists(st.tuples(TEMPLATES, st.integers(0, 60)), max_size=4))
def test_whatever_was_killed_the_next_run_gets_there(
    seed: int, limits: Limits, kills: list[tuple[str, int]]
) -> None:
    cluster = started_cluster(seed, limits)
    for template, after in kills:
        run(cluster, template, limits, after)
    live = run(cluster, "last", limits)
    assert live in cluster.colours, live
    assert (cluster.live, cluster.source, cluster.templates[live]) == (live, "", "last")
    assert cluster.colours[live].ready == limits.replicas
    assert sum(colour.state.pods for colour in cluster.colours.values()) == limits.replicas
    assert cluster.max_pods <= limits.replicas
    assert cluster.min_ready >= 1


@given(SEEDS, random_limits(), st.sampled_from(["bad", "late"]), st.lists(st.integers(0, 90), max_size=3))
def test_pods_that_do_not_get_ready_lead_back_even_when_the_way_back_is_killed(
    seed: int, limits: Limits, template: str, kills: list[int]
) -> None:
    cluster = started_cluster(seed, limits)
    for after in kills:
        run(cluster, template, limits, after)
    message = run(cluster, template, limits)
    assert message is not None
    restored = f"blue has its {limits.replicas} replicas again, and the Service points to it"
    assert message.endswith(f"(pod w: not ready); {restored}")
    assert (cluster.live, cluster.source, cluster.colours["blue"].ready) == ("blue", "", limits.replicas)
    assert cluster.colours["green"].state.gpu_pods == 0
    assert cluster.max_pods <= limits.replicas
    assert cluster.min_ready >= 1
