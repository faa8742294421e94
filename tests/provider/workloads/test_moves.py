"""The moves from one colour to the other, on a played cluster: pods start and end in random order."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.provider.workloads.moves import Do, Rule, Side, next_move

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
