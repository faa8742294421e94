"""Moves and whole updates on a played cluster: pods start and end in random order, runs are killed."""

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
from gpuform.provider.workloads.pair import Seen, Side
from gpuform.provider.workloads.turn import Do, Rule, next_move

pytestmark = pytest.mark.unit


@dataclass
class Colour:
    """One Deployment: declared replicas, and counts of its starting, ready and ending pods."""

    replicas: int = 0
    starting: int = 0
    ready: int = 0
    ending: int = 0
    broken: bool = False

    @property
    def side(self) -> Side:
        return Side(self.replicas, self.starting + self.ready + self.ending, self.ready, self.ending)

    def happens(self, by: Random) -> None:
        """One action of a controller, kubelet or runtime, or none."""
        what = by.randrange(4)
        if what == 0 and self.starting + self.ready < self.replicas:
            self.starting += 1
        elif what == 0 and self.starting + self.ready > self.replicas:
            # As the ReplicaSet controller does: pods that are not ready first.
            self.starting, self.ready = (
                (self.starting - 1, self.ready) if self.starting else (0, self.ready - 1)
            )
            self.ending += 1
        elif what == 1 and self.starting and not self.broken:
            self.starting, self.ready = self.starting - 1, self.ready + 1
        elif what == 2 and self.ending:
            self.ending -= 1


@dataclass
class Played:
    old: Colour
    new: Colour
    rule: Rule
    by: Random
    switched: bool = False
    most: int = 0
    served: list[int] = field(default_factory=list)

    def run(self, moves: int) -> bool:
        for _ in range(moves):
            move = next_move(self.old.side, self.new.side, self.switched, self.rule)
            if move.do is Do.DONE:
                return True
            if move.do is Do.SWITCH:
                self.switched = True
            elif move.do is Do.GROW:
                self.new.replicas = move.replicas
            elif move.do is Do.SHRINK:
                self.old.replicas = move.replicas
            for _ in range(self.by.randrange(4)):
                self.by.choice((self.old, self.new)).happens(self.by)
                self._look()
        return False

    def _look(self) -> None:
        self.most = max(self.most, self.old.side.pods + self.new.side.pods)
        self.served.append((self.new if self.switched else self.old).ready)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    replicas = draw(st.integers(2, 9))
    return Rule(replicas, draw(st.integers(1, replicas)), draw(st.integers(1, replicas - 1)))


@given(rules(), st.integers(0, 2**32))
def test_it_ends_and_never_has_more_pods_than_replicas_nor_serves_with_none(rule: Rule, seed: int) -> None:
    played = Played(Colour(rule.replicas, 0, rule.replicas), Colour(), rule, Random(seed))
    assert played.run(3000)
    assert played.most <= rule.replicas
    assert min(played.served) >= min(rule.switch_at, rule.replicas - rule.switch_at)
    assert played.switched
    assert (played.old.side, played.new.ready) == (Side(), rule.replicas)


@given(rules(), st.integers(0, 2**32), st.integers(0, 200))
def test_broken_pods_stop_it_before_the_switch_and_it_goes_back(rule: Rule, seed: int, moves: int) -> None:
    old, new = Colour(rule.replicas, 0, rule.replicas), Colour(broken=True)
    there = Played(old, new, rule, Random(seed))
    assert not there.run(moves)
    assert not there.switched
    back = Played(new, old, rule, there.by, switched=True)  # the roles change, the Service was never switched
    assert back.run(3000)
    assert max(there.most, back.most) <= rule.replicas
    assert (new.side, old.ready) == (Side(), rule.replicas)
    assert min(back.served + there.served, default=1) >= 1


@given(rules(), st.integers(0, 2**32), st.integers(0, 60))
def test_pods_that_break_after_the_switch_let_it_go_back_too(rule: Rule, seed: int, moves: int) -> None:
    old, new = Colour(rule.replicas, 0, rule.replicas), Colour()
    there = Played(old, new, rule, Random(seed))
    there.run(moves)
    new.broken = True
    back = Played(new, old, rule, there.by, switched=not there.switched)
    assert back.run(5000)
    assert back.most <= rule.replicas
    assert min(back.served, default=1) >= 1
    assert old.ready == rule.replicas


@given(rules(), st.integers(1, 12), st.integers(0, 2**32))
def test_another_number_with_the_new_pods(rule: Rule, before: int, seed: int) -> None:
    played = Played(Colour(before, 0, before), Colour(), rule, Random(seed))
    assert played.run(5000)
    assert played.most <= max(before, rule.replicas)
    assert played.new.ready == rule.replicas


@pytest.mark.parametrize(
    ("old", "new", "switched", "expected"),
    [
        (Side(4, 4, 4), Side(), False, (Do.SHRINK, 3)),
        (Side(3, 4, 3), Side(), False, (Do.WAIT, 0)),  # the terminating pod still has its GPU
        (Side(3, 3, 3), Side(), False, (Do.GROW, 1)),
        (Side(3, 3, 3), Side(1, 1, 0), False, (Do.WAIT, 0)),  # the next step starts when this pod is ready
        (Side(3, 3, 3), Side(1, 1, 1), False, (Do.SHRINK, 2)),
        (Side(2, 2, 2), Side(2, 2, 2), False, (Do.SWITCH, 0)),
        (Side(2, 2, 2), Side(2, 2, 2), True, (Do.SHRINK, 0)),
        (Side(0, 1, 0), Side(2, 2, 2), True, (Do.GROW, 3)),
        (Side(0, 0, 0), Side(4, 4, 3), True, (Do.WAIT, 0)),
        (Side(0, 0, 0), Side(4, 4, 4), True, (Do.DONE, 0)),
        (Side(0, 0, 0), Side(6, 6, 6), True, (Do.GROW, 4)),
    ],
)
def test_one_move(old: Side, new: Side, switched: bool, expected: tuple[Do, int]) -> None:
    move = next_move(old, new, switched, Rule(4, 1, 2))
    assert (move.do, move.replicas) == expected


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
