"""Whole updates on a played cluster, killed at any point, with a changed declaration in between."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.checkout.errors import OperationError
from gpuform.provider.workloads import turn
from gpuform.provider.workloads.moves import Side
from gpuform.provider.workloads.pair import Seen
from tests.provider.workloads.test_moves import Colour

pytestmark = pytest.mark.unit

REPLICAS = 4


class Killed(BaseException):
    """The process ended here."""


@dataclass
class World:
    """The cluster's state: it outlives every run."""

    by: Random
    colours: dict[str, Colour] = field(default_factory=lambda: {"blue": Colour(), "green": Colour()})
    templates: dict[str, str] = field(default_factory=lambda: {"blue": "", "green": ""})
    live: str = ""
    source: str = ""
    now: float = 0.0
    most: int = 0
    fewest: int = REPLICAS

    def passes(self, seconds: float) -> None:
        """Advance time; random actions happen."""
        self.now += seconds
        for _ in range(6):
            self.by.choice(list(self.colours.values())).happens(self.by)
            self.most = max(self.most, sum(one.side.pods for one in self.colours.values()))
            if self.live:
                self.fewest = min(self.fewest, self.colours[self.live].ready)


@dataclass
class PlayedPair:
    """The pair as a run sees it; a template that begins with ``bad`` never becomes ready."""

    world: World
    template: str
    dies_after: int = 10**9
    replicas: int = REPLICAS
    title: str = "Deployment default/w"

    def _one_more(self) -> None:
        self.dies_after -= 1
        if self.dies_after < 0:
            raise Killed
        self.world.passes(0)

    async def see(self) -> Seen:
        self._one_more()
        sides = {}
        for name, one in self.world.colours.items():
            template = self.world.templates[name]
            sides[name] = Side(
                one.replicas, one.side.pods, one.ready, one.ending, template, REPLICAS if template else 0
            )
        return Seen(sides, self.world.live, self.world.source)

    async def make(self, colour: str, replicas: int) -> None:
        self._one_more()
        one = self.world.colours[colour]
        if self.world.templates[colour] != self.template:
            assert not one.side.pods, "its template changes while it has no pods"
        self.world.templates[colour] = self.template
        one.replicas, one.broken = replicas, self.template.startswith("bad")

    async def scale(self, colour: str, replicas: int) -> None:
        self._one_more()
        self.world.colours[colour].replicas = replicas

    async def serve(self, colour: str) -> None:
        self._one_more()
        self.world.live, self.world.source = colour, ""

    async def point(self, colour: str) -> None:
        self._one_more()
        self.world.live = colour

    async def note(self, source: str | None) -> None:
        self._one_more()
        self.world.source = source or ""

    async def waiting(self, colour: str) -> list[str]:
        return ["pod w: not ready"]


@dataclass
class PlayedCall:
    world: World

    async def sleep(self, seconds: float) -> None:
        self.world.passes(seconds)

    async def status(self, text: str) -> None:
        pass

    info = warn = status

    def monotonic(self) -> float:
        return self.world.now


def run(world: World, template: str, step: int, switch_at: int, dies_after: int = 10**9) -> str | None:
    """Run one update: the live colour or the failure message; None if it was killed."""
    call: Any = PlayedCall(world)
    pair: Any = PlayedPair(world, template, dies_after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turn, "time", call)
        try:
            return asyncio.run(turn.Turn(call, pair, step, switch_at, 120).run())
        except OperationError as error:
            return str(error)
        except Killed:
            return None


def begun(seed: int, step: int, switch_at: int) -> World:
    world = World(Random(seed))
    assert run(world, "one", step, switch_at) == "blue"
    world.fewest = REPLICAS  # before the first pod there was none
    return world


STEPS, SWITCHES = st.integers(1, REPLICAS), st.integers(1, REPLICAS - 1)
KILLS = st.lists(st.tuples(st.sampled_from(["one", "two", "three", "bad"]), st.integers(0, 60)), max_size=4)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), STEPS, SWITCHES, KILLS)
def test_whatever_was_killed_the_next_run_gets_there(
    seed: int, step: int, switch_at: int, kills: list[tuple[str, int]]
) -> None:
    world = begun(seed, step, switch_at)
    for template, after in kills:
        run(world, template, step, switch_at, after)
    live = run(world, "last", step, switch_at)
    assert live in world.colours, live
    assert (world.live, world.source, world.templates[live]) == (live, "", "last")
    assert world.colours[live].ready == REPLICAS
    assert sum(one.side.pods for one in world.colours.values()) == REPLICAS
    assert world.most <= REPLICAS
    assert world.fewest >= 1


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32), STEPS, SWITCHES, st.lists(st.integers(0, 90), max_size=3))
def test_bad_pods_lead_back_even_when_the_way_back_is_killed(
    seed: int, step: int, switch_at: int, kills: list[int]
) -> None:
    world = begun(seed, step, switch_at)
    for after in kills:
        run(world, "bad", step, switch_at, after)
    said = run(world, "bad", step, switch_at)
    assert said is not None
    assert said.endswith("(pod w: not ready); blue has its 4 replicas again, and the Service points to it")
    assert (world.live, world.source, world.colours["blue"].ready) == ("blue", "", REPLICAS)
    assert world.colours["green"].side.held == 0
    assert world.most <= REPLICAS
    assert world.fewest >= 1
