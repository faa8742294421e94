"""The health loop's decisions: limited in number, once for each fault, and the worst first."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.incluster import cases, judge
from infra.incluster.judge import Fault, Settings, State
from tests.incluster.played_judge import CORDON, NOW, OBSERVE, REPLACE, Played, actions, fault, node, nodes

pytestmark = pytest.mark.unit


def test_the_breaker_stops_at_a_fifth_of_twenty_nodes() -> None:
    played = Played(nodes(20))
    steps = played.look([fault(f"n{number:02}") for number in range(8)], NOW)
    assert actions(steps) == [
        *(("cordon", f"n{number:02}") for number in range(4)),
        *(("withhold", f"n{number:02}") for number in range(4, 8)),
    ]
    assert played.state.breaker is not None
    assert steps[-1].why == "breaker open: 4 actions in 3600 s, and the budget is 4"


def test_a_small_stack_bears_one_action() -> None:
    steps = Played(nodes(7)).look([fault("n00"), fault("n01")], NOW)
    assert steps[-1].why == "breaker open: 1 action in 3600 s, and the budget is 1"


def test_an_open_breaker_stays_open_until_a_person_closes_it() -> None:
    played = Played(nodes(20))
    ill = [fault(f"n{number:02}") for number in range(8)]
    played.look(ill, NOW)
    assert played.look(ill, NOW + 15) == []
    assert played.look(ill, NOW + 7200) == []
    played.state = judge.reset(played.state)
    assert actions(played.look(ill, NOW + 7215)) == [("cordon", f"n{number:02}") for number in range(4, 8)]
    assert played.state.breaker is None


def test_faults_that_have_gone_while_the_breaker_was_open_are_not_made_up_for() -> None:
    played = Played(nodes(20))
    played.look([fault(f"n{number:02}") for number in range(8)], NOW)
    played.state = judge.reset(played.state)
    assert played.look([], NOW + 15) == []


@pytest.mark.parametrize(
    ("count", "budget", "most", "expected"),
    [
        (20, 0.2, None, 4),
        (3, 0.2, None, 1),
        (1, 0.01, None, 1),
        (100, 0.29, None, 29),
        (100, 0.2, 5, 5),
        (0, 1, 3, 1),
    ],
)
def test_the_budget(count: int, budget: float, most: int | None, expected: int) -> None:
    declared = dataclasses.replace(CORDON, budget=budget, most=most)
    assert judge.limit(declared, nodes(count), State()) == expected


def test_nodes_that_come_for_those_that_were_replaced_do_not_raise_the_budget() -> None:
    played = Played([node(f"n{number:02}", claim=True) for number in range(20)], REPLACE)
    played.look([fault(f"n{number:02}") for number in range(4)], NOW)
    for number in range(4):
        del played.there[f"n{number:02}"]
    for number in range(20, 40):
        played.there[f"n{number}"] = node(f"n{number}", claim=True)
    assert actions(played.look([fault("n10")], NOW + 600)) == [("withhold", "n10")]


@pytest.mark.parametrize("kind", ["application", "informational"])
def test_what_an_application_does_costs_no_node(kind: str) -> None:
    played = Played(nodes(3))
    assert played.look([fault("n00", kind, "31")], NOW) == []
    assert played.state == State()


def test_a_node_that_is_not_there_and_one_that_is_no_pools_are_left_alone() -> None:
    assert Played(nodes(1)).look([fault("other")], NOW) == []


def test_the_same_fault_is_acted_on_once_whatever_happens_to_the_loop() -> None:
    played = Played(nodes(5))
    assert actions(played.look([fault("n00")], NOW)) == [("cordon", "n00")]
    for later in range(1, 300):
        if later % 7 == 0:
            played.restart()
        assert played.look([fault("n00")], NOW + 15 * later) == []


def test_a_lost_memory_does_not_bring_it_back() -> None:
    """Actions are recorded on the node, too."""
    played = Played(nodes(5))
    played.look([fault("n00")], NOW)
    played.state, played.quiet = State(), {}
    assert played.look([fault("n00")], NOW + 15) == []


def test_a_loop_that_ended_before_it_acted_acts_later_and_has_counted_it() -> None:
    played = Played(nodes(5))
    played.look([fault("n00")], NOW, fails=True)
    played.restart()
    steps = played.look([fault("n00"), fault("n01")], NOW + 60)
    assert actions(steps) == [("cordon", "n00"), ("withhold", "n01")]
    assert steps[0].at == NOW
    assert played.look([fault("n00"), fault("n01")], NOW + 75) == []


def test_what_cannot_be_done_for_longer_than_the_window_is_not_forgotten() -> None:
    """A failed action counts while it is pending, and for a window from its completion."""
    played, long = Played(nodes(5)), CORDON.window_s + 60
    played.look([fault("n00")], NOW, fails=True)
    assert actions(played.look([fault("n00")], NOW + long, fails=True)) == [("cordon", "n00")]
    steps = played.look([fault("n00"), fault("n01")], NOW + long + 15)
    assert actions(steps) == [("cordon", "n00"), ("withhold", "n01")]
    played.state = judge.reset(played.state)
    played.declared = dataclasses.replace(CORDON, budget=0.4)
    assert actions(played.look([fault("n00"), fault("n01")], NOW + long + 30)) == [("cordon", "n01")]


def test_a_stored_action_is_carried_out_after_its_fault_has_ended_unless_the_node_was_rebooted() -> None:
    for boot, then in (("boot-1", [("cordon", "n00")]), ("boot-2", [])):
        played = Played(nodes(5))
        played.look([fault("n00")], NOW, fails=True)
        played.restart()
        played.change("n00", boot=boot)
        assert actions(played.look([], NOW + 60)) == then
        assert played.look([], NOW + 75) == []


KARPENTERS = dataclasses.replace(REPLACE, budget=1)
PENDING = [
    ("replace", {}, KARPENTERS, True, [("replace", "n")]),
    ("replace", {}, KARPENTERS, False, [("ticket", "n")]),  # no removal without a reported fault
    ("replace", {"pinned": True}, KARPENTERS, True, [("ticket", "n")]),
    ("replace", {}, dataclasses.replace(CORDON, mode="ticket"), True, [("ticket", "n")]),
    ("replace", {}, CORDON, False, [("cordon", "n")]),
    ("replace", {}, OBSERVE, True, []),
    ("reset", {}, KARPENTERS, False, [("ticket", "n")]),
    ("replace", {"repaired": "new GPU"}, KARPENTERS, False, [("wait", "n")]),
    ("replace", {"repaired": "new GPU"}, KARPENTERS, True, [("wait", "n")]),
    ("reset", {"boot": "boot-2"}, KARPENTERS, False, [("wait", "n")]),
    ("replace", {"boot": "boot-2"}, KARPENTERS, False, [("ticket", "n")]),
    ("replace", {"uid": "another"}, KARPENTERS, False, []),
]


@pytest.mark.parametrize(("kind", "more", "then", "active", "expected"), PENDING)
def test_a_cordoned_node_is_not_forgotten_when_the_rest_of_its_action_failed(
    kind: str, more: dict[str, Any], then: Settings, active: bool, expected: list[tuple[str, str]]
) -> None:
    """It gets a replacement, a ticket or a repair, and never more than is allowed by now."""
    ill = [fault("n", kind)]
    played = Played([node("n", claim=True)], KARPENTERS)
    played.look(ill, NOW, halves=True)
    played.restart()
    if "uid" in more:  # a new node of the name
        played.there["n"] = dataclasses.replace(node("n", claim=True), **more)
    played.change("n", **more)
    played.declared = then
    assert actions(played.look(ill if active else [], NOW + 60)) == expected
    assert played.look(ill if active else [], NOW + 75) == [] or expected == [("wait", "n")]


def test_a_pending_action_is_resumed_by_a_loop_that_acts_again_and_keeps_its_place_in_the_budget() -> None:
    played = Played(nodes(5))
    played.declared = dataclasses.replace(CORDON, mode="ticket")
    played.look([fault("n00")], NOW, halves=True)
    for mode in ("observe", "ticket"):
        played.declared = dataclasses.replace(CORDON, mode=mode)
        steps = played.look([fault("n01")], NOW + 60)
    assert actions(steps) == [("ticket", "n00"), ("withhold", "n01")]


def test_a_worse_fault_takes_the_place_of_a_pending_action() -> None:
    played = Played([node("n", claim=True), *nodes(9)], KARPENTERS)
    reset = fault("n", "reset", "48")
    played.look([reset], NOW, halves=True)
    assert actions(played.look([reset, fault("n")], NOW + 15)) == [("replace", "n")]
    assert actions(played.look([], NOW + 30)) == []
    assert played.there["n"].taint == "replace"


def test_a_new_node_is_cordoned_at_once_and_removed_when_the_fault_can_only_be_its_own() -> None:
    """A fault of a node that was removed is reported for up to ten minutes, under a name used again."""
    for active, then in ((True, "replace"), (False, "ticket")):
        played = Played([dataclasses.replace(node("n", claim=True), since=NOW - 30)], KARPENTERS)
        assert actions(played.look([fault("n")], NOW)) == [("cordon", "n")]
        assert played.look([fault("n")], NOW + 15) == []
        assert actions(played.look([fault("n")] if active else [], NOW + 600)) == [(then, "n")]


@pytest.mark.parametrize(
    "one", [fault("n"), fault("n", "reset", "48", "1"), Fault("n", "3", "", "", "reset", "ecc")]
)
def test_a_fault_is_known_again_by_its_id(one: Fault) -> None:
    assert Fault.of(one.id).id == one.id
    assert one.uuid in Fault.of(one.id).words


def test_a_second_fault_of_a_node_that_is_out_of_use_is_noted() -> None:
    played = Played(nodes(20))
    played.look([fault("n00")], NOW)
    both = [fault("n00"), fault("n00", "reset", "48", "1")]
    assert actions(played.look(both, NOW + 15)) == [("note", "n00")]
    assert played.look(both, NOW + 30) == []
    assert len(played.state.actions) == 1


def test_a_worse_fault_is_another_action() -> None:
    played = Played([*nodes(9), node("n10", claim=True)], dataclasses.replace(REPLACE, budget=0.4))
    reset = fault("n10", "reset", "48")
    assert actions(played.look([reset], NOW)) == [("ticket", "n10")]
    assert actions(played.look([reset, fault("n10")], NOW + 15)) == [("replace", "n10")]
    assert played.there["n10"].taint == "replace"


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("replace", {"claim": True}, "replace"),
        ("replace", {"claim": True, "pinned": True}, "ticket"),
        ("replace", {"claim": True, "repaired": "new GPU"}, "ticket"),
        ("replace", {}, "ticket"),
        ("reset", {"claim": True}, "ticket"),
    ],
)
def test_only_a_broken_gpu_of_karpenters_costs_a_node(kind: str, more: dict[str, Any], expected: str) -> None:
    played = Played([node("n", **more)], REPLACE)
    assert actions(played.look([fault("n", kind)], NOW)) == [(expected, "n")]


def test_the_worst_comes_first() -> None:
    played = Played(nodes(5))
    steps = played.look([fault("n00", "reset"), fault("n04", "replace")], NOW)
    assert actions(steps) == [("cordon", "n04"), ("withhold", "n00")]


def test_who_only_observes_says_what_would_be_done_and_stops_where_it_would() -> None:
    played = Played(nodes(5), OBSERVE)
    assert actions(played.look([fault("n00"), fault("n01")], NOW)) == [
        ("observe", "n00"),
        ("withhold", "n01"),
    ]
    assert played.look([fault("n00"), fault("n01")], NOW + 15) == []
    played.declared = CORDON
    assert actions(played.look([fault("n00"), fault("n01")], NOW + 30)) == [
        ("cordon", "n00"),
        ("withhold", "n01"),
    ]


def test_a_worse_fault_beside_one_that_was_acted_on_makes_the_latter_no_news() -> None:
    """The node's record is rewritten, and was the only memory of the first one."""
    played, first, worse = Played(nodes(20)), fault("n00", "reset", "48"), fault("n00", "replace", "79")
    assert actions(played.look([first], NOW)) == [("cordon", "n00")]
    assert played.look([], NOW + 700) == []
    assert actions(played.look(sorted([first, worse]), NOW + 715)) == [("cordon", "n00")]
    assert played.look(sorted([first, worse]), NOW + 730) == []


def test_nodes_are_not_judged_by_their_order() -> None:
    ill = [fault(f"n{number:02}") for number in range(8)]
    one = judge.decide(CORDON, nodes(20), ill, State(), {}, NOW)
    other = judge.decide(CORDON, nodes(20)[::-1], ill[::-1], State(), {}, NOW)
    assert one == other


NAMES = [f"n{number:02}" for number in range(12)]
FAULTS = st.builds(
    fault,
    st.sampled_from(NAMES),
    st.sampled_from(cases.CLASSES),
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
