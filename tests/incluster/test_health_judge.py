"""The health loop's decisions: limited in number, once for each fault, and the worst first."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.incluster import decisions, model
from infra.incluster.decisions import Fault, Settings, State
from tests.incluster.fake_loop import CORDON, NOW, OBSERVE, TICKET, FakeLoop, fault, node, nodes, taken

pytestmark = pytest.mark.unit


def test_the_breaker_stops_at_a_fifth_of_twenty_nodes() -> None:
    loop = FakeLoop(nodes(20))
    steps = loop.run([fault(f"n{number:02}") for number in range(8)], NOW)
    assert taken(steps) == [
        *(("cordon", f"n{number:02}") for number in range(4)),
        *(("withhold", f"n{number:02}") for number in range(4, 8)),
    ]
    assert loop.state.breaker is not None
    assert steps[-1].reason == "breaker open: 4 actions in 3600 s, and the budget is 4"


def test_a_small_stack_bears_one_action() -> None:
    steps = FakeLoop(nodes(7)).run([fault("n00"), fault("n01")], NOW)
    assert steps[-1].reason == "breaker open: 1 action in 3600 s, and the budget is 1"


def test_an_open_breaker_stays_open_until_a_person_closes_it() -> None:
    loop = FakeLoop(nodes(20))
    faults = [fault(f"n{number:02}") for number in range(8)]
    loop.run(faults, NOW)
    assert loop.run(faults, NOW + 15) == []
    assert loop.run(faults, NOW + 7200) == []
    loop.state = decisions.reset_breaker(loop.state)
    assert taken(loop.run(faults, NOW + 7215)) == [("cordon", f"n{number:02}") for number in range(4, 8)]
    assert loop.state.breaker is None


def test_faults_that_have_gone_while_the_breaker_was_open_are_not_made_up_for() -> None:
    loop = FakeLoop(nodes(20))
    loop.run([fault(f"n{number:02}") for number in range(8)], NOW)
    loop.state = decisions.reset_breaker(loop.state)
    assert loop.run([], NOW + 15) == []


@pytest.mark.parametrize(
    ("count", "budget", "max_actions", "expected"),
    [
        (20, 0.2, None, 4),
        (3, 0.2, None, 1),
        (1, 0.01, None, 1),
        (100, 0.29, None, 29),
        (100, 0.2, 5, 5),
        (0, 1, 3, 1),
    ],
)
def test_budget_is_a_share_of_the_nodes_within_its_limits(
    count: int, budget: float, max_actions: int | None, expected: int
) -> None:
    declared = dataclasses.replace(CORDON, budget=budget, max_actions=max_actions)
    assert decisions.action_limit(declared, nodes(count), State()) == expected


def test_nodes_that_join_in_the_window_do_not_raise_the_budget() -> None:
    loop = FakeLoop(nodes(20))
    loop.run([fault(f"n{number:02}") for number in range(4)], NOW)
    loop.nodes |= {name: node(name) for name in (f"n{number}" for number in range(20, 40))}
    assert taken(loop.run([fault("n10")], NOW + 600)) == [("withhold", "n10")]


@pytest.mark.parametrize("kind", ["application", "informational"])
def test_what_an_application_does_costs_no_node(kind: str) -> None:
    loop = FakeLoop(nodes(3))
    assert loop.run([fault("n00", kind, "31")], NOW) == []
    assert loop.state == State()


def test_fault_of_an_unknown_node_is_left_alone() -> None:
    assert FakeLoop(nodes(1)).run([fault("other")], NOW) == []


def test_the_same_fault_is_acted_on_once_whatever_happens_to_the_loop() -> None:
    loop = FakeLoop(nodes(5))
    assert taken(loop.run([fault("n00")], NOW)) == [("cordon", "n00")]
    for later in range(1, 300):
        if later % 7 == 0:
            loop.restart()
        assert loop.run([fault("n00")], NOW + 15 * later) == []


def test_fault_recorded_on_the_node_is_not_acted_on_after_the_state_is_lost() -> None:
    """Actions are recorded on the node, too."""
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00")], NOW)
    loop.state, loop.quiet_since = State(), {}
    assert loop.run([fault("n00")], NOW + 15) == []


def test_a_loop_that_ended_before_it_acted_acts_later_and_has_counted_it() -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00")], NOW, fails=True)
    loop.restart()
    steps = loop.run([fault("n00"), fault("n01")], NOW + 60)
    assert taken(steps) == [("cordon", "n00"), ("withhold", "n01")]
    assert steps[0].at == NOW
    assert loop.run([fault("n00"), fault("n01")], NOW + 75) == []


def test_what_cannot_be_done_for_longer_than_the_window_is_not_forgotten() -> None:
    """A failed action counts while it is pending, and for a window from its completion."""
    loop, long = FakeLoop(nodes(5)), CORDON.window_s + 60
    loop.run([fault("n00")], NOW, fails=True)
    assert taken(loop.run([fault("n00")], NOW + long, fails=True)) == [("cordon", "n00")]
    steps = loop.run([fault("n00"), fault("n01")], NOW + long + 15)
    assert taken(steps) == [("cordon", "n00"), ("withhold", "n01")]
    loop.state = decisions.reset_breaker(loop.state)
    loop.settings = dataclasses.replace(CORDON, budget=0.4)
    assert taken(loop.run([fault("n00"), fault("n01")], NOW + long + 30)) == [("cordon", "n01")]


def test_a_stored_action_is_carried_out_after_its_fault_has_ended_unless_the_node_was_rebooted() -> None:
    for boot, then in (("boot-1", [("cordon", "n00")]), ("boot-2", [])):
        loop = FakeLoop(nodes(5))
        loop.run([fault("n00")], NOW, fails=True)
        loop.restart()
        loop.change_node("n00", boot_id=boot)
        assert taken(loop.run([], NOW + 60)) == then
        assert loop.run([], NOW + 75) == []


TICKET_ALL = dataclasses.replace(TICKET, budget=1)
PENDING = [
    ("replace", {}, TICKET_ALL, True, [("ticket", "n")]),
    ("replace", {}, TICKET_ALL, False, [("ticket", "n")]),
    ("replace", {}, CORDON, False, [("cordon", "n")]),
    ("replace", {}, OBSERVE, True, []),
    ("replace", {"repaired": "new GPU"}, TICKET_ALL, False, [("wait", "n")]),
    ("replace", {"repaired": "new GPU"}, TICKET_ALL, True, [("wait", "n")]),
    ("reset", {"boot_id": "boot-2"}, TICKET_ALL, False, [("wait", "n")]),
    ("replace", {"boot_id": "boot-2"}, TICKET_ALL, False, [("ticket", "n")]),
    ("replace", {"uid": "another"}, TICKET_ALL, False, []),
]


@pytest.mark.parametrize(("kind", "changes", "declared", "active", "expected"), PENDING)
def test_a_cordoned_node_is_not_forgotten_when_the_rest_of_its_action_failed(
    kind: str, changes: dict[str, Any], declared: Settings, active: bool, expected: list[tuple[str, str]]
) -> None:
    """It gets a ticket or a repair, and never more than is allowed by now."""
    faults = [fault("n", kind)]
    loop = FakeLoop([node("n")], TICKET_ALL)
    loop.run(faults, NOW, only_cordon=True)
    loop.restart()
    if "uid" in changes:  # a new node of the name
        loop.nodes["n"] = dataclasses.replace(node("n"), **changes)
    loop.change_node("n", **changes)
    loop.settings = declared
    assert taken(loop.run(faults if active else [], NOW + 60)) == expected
    assert loop.run(faults if active else [], NOW + 75) == [] or expected == [("wait", "n")]


@pytest.mark.parametrize("active", [[fault("n00")], []])
def test_a_node_that_was_cordoned_before_mode_ticket_gets_its_ticket_once(active: list[Fault]) -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00"), fault("n01")], NOW)
    loop.settings = dataclasses.replace(TICKET, budget=0.01)
    (step,) = loop.run(active, NOW + 7200, fails=True)
    assert (step.action, step.node, [one.id for one in step.faults]) == ("ticket", "n00", [fault("n00").id])
    loop.restart()
    assert taken(loop.run(active, NOW + 7215)) == [("ticket", "n00")]
    assert loop.run(active, NOW + 7230) == []
    assert loop.state.actions == [], "it uses none of the budget"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"repaired": "new GPU"}, [("wait", "n00")]),
        ({"record": {"class": "replace", "action": "cordon", "faults": ["by hand"]}}, [("ticket", "n00")]),
        ({"taint": None}, [("restore", "n00")]),
        ({"record": None}, []),
    ],
)
def test_a_repaired_node_and_one_that_others_have_tainted_get_no_ticket(
    changes: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00")], NOW)
    loop.change_node("n00", **changes)
    loop.settings = TICKET
    assert taken(loop.run([], NOW + 15)) == expected


def test_a_pending_action_is_resumed_by_a_loop_that_acts_again_and_keeps_its_place_in_the_budget() -> None:
    loop = FakeLoop(nodes(5))
    loop.settings = dataclasses.replace(CORDON, mode="ticket")
    loop.run([fault("n00")], NOW, only_cordon=True)
    for mode in ("observe", "ticket"):
        loop.settings = dataclasses.replace(CORDON, mode=mode)
        steps = loop.run([fault("n01")], NOW + 60)
    assert taken(steps) == [("ticket", "n00"), ("withhold", "n01")]


def test_a_worse_fault_takes_the_place_of_a_pending_action() -> None:
    loop = FakeLoop([node("n"), *nodes(9)], TICKET_ALL)
    reset = fault("n", "reset", "48")
    loop.run([reset], NOW, only_cordon=True)
    assert taken(loop.run([reset, fault("n")], NOW + 15)) == [("ticket", "n")]
    assert taken(loop.run([], NOW + 30)) == []
    assert loop.nodes["n"].taint == "replace"


@pytest.mark.parametrize(
    "fault_", [fault("n"), fault("n", "reset", "48", "1"), Fault("n", "3", "", "", "reset", "ecc")]
)
def test_a_fault_is_known_again_by_its_id(fault_: Fault) -> None:
    assert Fault.from_id(fault_.id).id == fault_.id
    assert fault_.uuid in Fault.from_id(fault_.id).text


def test_a_second_fault_of_a_node_that_is_out_of_use_is_noted() -> None:
    loop = FakeLoop(nodes(20))
    loop.run([fault("n00")], NOW)
    both = [fault("n00"), fault("n00", "reset", "48", "1")]
    assert taken(loop.run(both, NOW + 15)) == [("note", "n00")]
    assert loop.run(both, NOW + 30) == []
    assert len(loop.state.actions) == 1


def test_a_worse_fault_is_another_action() -> None:
    loop = FakeLoop([*nodes(9), node("n10")], dataclasses.replace(TICKET, budget=0.4))
    reset = fault("n10", "reset", "48")
    assert taken(loop.run([reset], NOW)) == [("ticket", "n10")]
    assert taken(loop.run([reset, fault("n10")], NOW + 15)) == [("ticket", "n10")]
    assert loop.nodes["n10"].taint == "replace"


def test_worst_fault_is_acted_on_first() -> None:
    loop = FakeLoop(nodes(5))
    steps = loop.run([fault("n00", "reset"), fault("n04", "replace")], NOW)
    assert taken(steps) == [("cordon", "n04"), ("withhold", "n00")]


def test_who_only_observes_says_what_would_be_done_and_stops_where_it_would() -> None:
    loop = FakeLoop(nodes(5), OBSERVE)
    assert taken(loop.run([fault("n00"), fault("n01")], NOW)) == [
        ("observe", "n00"),
        ("withhold", "n01"),
    ]
    assert loop.run([fault("n00"), fault("n01")], NOW + 15) == []
    loop.settings = CORDON
    assert taken(loop.run([fault("n00"), fault("n01")], NOW + 30)) == [
        ("cordon", "n00"),
        ("withhold", "n01"),
    ]


def test_a_worse_fault_beside_one_that_was_acted_on_makes_the_latter_no_news() -> None:
    """The node's record is rewritten, and was the only memory of the first one."""
    loop, first, worse = FakeLoop(nodes(20)), fault("n00", "reset", "48"), fault("n00", "replace", "79")
    assert taken(loop.run([first], NOW)) == [("cordon", "n00")]
    assert loop.run([], NOW + 700) == []
    assert taken(loop.run(sorted([first, worse]), NOW + 715)) == [("cordon", "n00")]
    assert loop.run(sorted([first, worse]), NOW + 730) == []


def test_the_state_of_a_loop_that_replaced_nodes_is_read() -> None:
    loop = FakeLoop(nodes(5), TICKET)
    loop.run([fault("n00")], NOW, fails=True)
    loop.state.actions[0]["action"] = "replace"
    loop.state = State.from_json({**loop.state.to_json(), "rebuilds": []})
    assert taken(loop.run([fault("n00")], NOW + 15)) == [("ticket", "n00")]


def test_nodes_are_not_judged_by_their_order() -> None:
    faults = [fault(f"n{number:02}") for number in range(8)]
    result = decisions.decide(CORDON, nodes(20), faults, State(), {}, NOW)
    reversed_result = decisions.decide(CORDON, nodes(20)[::-1], faults[::-1], State(), {}, NOW)
    assert result == reversed_result


NAMES = [f"n{number:02}" for number in range(12)]
FAULTS = st.builds(
    fault,
    st.sampled_from(NAMES),
    st.sampled_from(model.CLASSES),
    st.sampled_from(["13", "48", "79"]),
    st.sampled_from(["0", "1"]),
)
ROUNDS = st.lists(
    st.tuples(
        st.sets(FAULTS, max_size=8),
        st.sampled_from([15.0, 60.0, 700.0, 4000.0]),
        st.booleans(),  # the loop is restarted
        st.booleans(),  # its actions fail
    ),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(ROUNDS, st.sampled_from([CORDON, TICKET, OBSERVE]), st.integers(1, 100), st.integers(1, 12))
def test_never_more_than_the_budget_in_any_window(
    rounds: list[Any], declared: Settings, percent: int, count: int
) -> None:
    declared = dataclasses.replace(declared, budget=percent / 100)
    loop = FakeLoop([node(name) for name in NAMES[:count]], declared)
    limit, now = max(1, percent * count // 100), NOW
    for faults, seconds, restarts, fails in rounds:
        now += seconds
        if restarts:
            loop.restart()
        loop.run(sorted(faults), now, fails)
    for times in ([step.at for _, step in loop.completed], [at for at, _ in loop.completed]):
        for at in times:
            assert sum(at - declared.window_s < other <= at for other in times) <= limit
    for _, step in loop.completed:
        assert {fault_.kind for fault_ in step.faults} <= {"reset", "replace"}


@settings(max_examples=150, deadline=None)
@given(ROUNDS, st.sampled_from([CORDON, TICKET, OBSERVE]))
def test_a_repeated_round_changes_nothing(rounds: list[Any], declared: Settings) -> None:
    loop, now = FakeLoop([node(name) for name in NAMES], declared), NOW
    for faults, seconds, restarts, _ in rounds:
        now += seconds
        loop.run(sorted(faults), now)
        before = copy.deepcopy(loop.state)
        if restarts:
            loop.restart()
        assert [step for step in loop.run(sorted(faults), now) if step.action != "wait"] == []
        assert loop.state == before
