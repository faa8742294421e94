"""Invariants of the health loop, tested by random polls."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.incluster import asked, judge
from infra.incluster.judge import Settings, State
from tests.incluster.played_judge import CORDON, NOW, OBSERVE, REPLACE, Played, fault, node, nodes

pytestmark = pytest.mark.unit


def test_nodes_are_not_judged_by_their_order() -> None:
    ill = [fault(f"n{number:02}") for number in range(8)]
    one = judge.decide(CORDON, nodes(20), ill, State(), {}, NOW)
    other = judge.decide(CORDON, nodes(20)[::-1], ill[::-1], State(), {}, NOW)
    assert one == other


NAMES = [f"n{number:02}" for number in range(12)]
FAULTS = st.builds(
    fault,
    st.sampled_from(NAMES),
    st.sampled_from(asked.CLASSES),
    st.sampled_from(["13", "48", "79"]),
    st.sampled_from(["0", "1"]),
)
LOOKS = st.lists(
    st.tuples(
        st.sets(FAULTS, max_size=8),
        st.sampled_from([15.0, 60.0, 700.0, 4000.0]),
        st.booleans(),  # the loop is restarted
        st.booleans(),  # its actions fail
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(LOOKS, st.sampled_from([CORDON, REPLACE, OBSERVE]), st.integers(1, 100), st.integers(1, 12))
def test_never_more_than_the_budget_in_any_window(
    looks: list[Any], declared: Settings, percent: int, count: int
) -> None:
    declared = dataclasses.replace(declared, budget=percent / 100)
    played = Played(
        [node(name, claim=number % 2 == 0) for number, name in enumerate(NAMES[:count])], declared
    )
    bears, now = max(1, percent * count // 100), NOW
    for faults, passed, anew, fails in looks:
        now += passed
        if anew:
            played.restart()
        played.look(sorted(faults), now, fails)
    for times in ([step.at for _, step in played.done], [at for at, _ in played.done]):
        for at in times:
            assert sum(at - declared.window_s < other <= at for other in times) <= bears
    for _, step in played.done:
        assert {one.kind for one in step.faults} <= {"reset", "replace"}


@settings(max_examples=150, deadline=None)
@given(LOOKS, st.sampled_from([CORDON, REPLACE, OBSERVE]))
def test_the_same_again_changes_nothing_more(looks: list[Any], declared: Settings) -> None:
    played, now = Played([node(name) for name in NAMES], declared), NOW
    for faults, passed, anew, _ in looks:
        now += passed
        played.look(sorted(faults), now)
        before = copy.deepcopy(played.state)
        if anew:
            played.restart()
        assert [step for step in played.look(sorted(faults), now) if step.action != "wait"] == []
        assert played.state == before
