"""What the health loop decides; nothing here asks a server."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.incluster import asked, judge
from infra.incluster.judge import Fault, Node, Settings, State, Step

pytestmark = pytest.mark.unit

NOW = 1_800_000_000.0
CORDON = Settings(mode="cordon", budget=0.2, most=None, window_s=3600, settle_s=600)
REPLACE = dataclasses.replace(CORDON, mode="replace")
OBSERVE = dataclasses.replace(CORDON, mode="observe")


def fault(node: str, kind: str = "replace", xid: str = "79", gpu: str = "0") -> Fault:
    return Fault(node, gpu, f"GPU-{node}-{gpu}", xid, kind, "xid")


def node(name: str, **more: Any) -> Node:
    return Node(name, f"uid-{name}", NOW - 86400, "boot-1", missing="", **more)


def nodes(count: int) -> list[Node]:
    return [node(f"n{number:02}") for number in range(count)]


class Played:
    """The loop without a server: what it decides is done at once, unless it is told to fail."""

    def __init__(self, there: list[Node], declared: Settings = CORDON) -> None:
        self.there = {one.name: one for one in there}
        self.declared, self.state, self.quiet = declared, State(), dict[str, float]()
        self.done: list[tuple[float, Step]] = []

    def restart(self) -> None:
        self.quiet = {}
        self.state = State.of(json.loads(json.dumps(self.state.to_json())))

    def look(self, faults: list[Fault], now: float, fails: bool = False) -> list[Step]:
        there = list(self.there.values())
        self.quiet = judge.listen(self.quiet, judge.names(there, self.state), faults, now)
        steps, self.state = judge.decide(self.declared, there, faults, self.state, self.quiet, now)
        for step in [] if fails else steps:
            self._carry_out(step, now)
        return steps

    def _carry_out(self, step: Step, now: float) -> None:
        one = self.there[step.node]
        if step.at:
            self.done.append((now, step))
            self.state = judge.finished(self.state, step.at, step.node, now)
        if step.action in ("cordon", "ticket", "replace"):
            record = {"class": step.kind, "boot": one.boot, "faults": [fault.id for fault in step.faults]}
            one = dataclasses.replace(one, record=record, taint=step.kind, repaired=None)
        elif step.action == "lift":
            one = dataclasses.replace(one, record=None, taint=None, repaired=None)
        elif step.action == "restore":
            one = dataclasses.replace(one, taint=step.kind)
        self.there[one.name] = one

    def change(self, name: str, **more: Any) -> None:
        self.there[name] = dataclasses.replace(self.there[name], **more)


def actions(steps: list[Step]) -> list[tuple[str, str]]:
    return [(step.action, step.node) for step in steps]


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
    """What was done is noted on the node, too."""
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
    """It counts as long as it may still be done, and for a window from when it was."""
    played, long = Played(nodes(5)), CORDON.window_s + 60
    played.look([fault("n00")], NOW, fails=True)
    assert actions(played.look([fault("n00")], NOW + long, fails=True)) == [("cordon", "n00")]
    steps = played.look([fault("n00"), fault("n01")], NOW + long + 15)
    assert actions(steps) == [("cordon", "n00"), ("withhold", "n01")]
    played.state = judge.reset(played.state)
    played.declared = dataclasses.replace(CORDON, budget=0.4)
    assert actions(played.look([fault("n00"), fault("n01")], NOW + long + 30)) == [("cordon", "n01")]


def test_a_loop_that_comes_back_after_the_fault_does_nothing() -> None:
    played = Played(nodes(5))
    played.look([fault("n00")], NOW, fails=True)
    played.restart()
    assert played.look([], NOW + 60) == []
    assert played.look([], NOW + 75) == []


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


def quiet_after(played: Played, start: float, seconds: float) -> list[tuple[str, str]]:
    """What is done in a time without faults, by looks every 15 s."""
    looks = range(int(seconds / 15) + 1)
    return [action for number in looks for action in actions(played.look([], start + 15 * number))]


def test_a_fault_that_is_no_longer_seen_is_not_repaired() -> None:
    played = Played(nodes(5))
    played.look([fault("n00", "reset", "48"), fault("n00")], NOW)
    assert quiet_after(played, NOW + 15, 7200) == []
    assert played.there["n00"].taint == "replace"


def test_a_reboot_is_a_reset_and_no_other_gpu() -> None:
    played = Played(nodes(20))
    played.look([fault("n00", "reset", "48"), fault("n01")], NOW)
    for name in ("n00", "n01"):
        played.change(name, boot="boot-2")
    done = quiet_after(played, NOW + 15, 1200)
    assert ("lift", "n00") in done
    assert ("lift", "n01") not in done
    assert played.there["n00"].record is None
    assert played.there["n01"].taint == "replace"


def test_what_a_person_has_repaired_comes_back_once_it_has_been_well_for_long_enough() -> None:
    played = Played(nodes(5))
    played.look([fault("n00")], NOW)
    played.change("n00", repaired="new GPU")
    assert played.look([fault("n00")], NOW + 15)[0].why == f"still there: {fault('n00').words}"
    # Silent since NOW + 15, so that it is over at NOW + 615; a lost GPU is silent, too.
    assert {action for action, _ in quiet_after(played, NOW + 30, 570)} == {"wait"}
    played.change("n00", missing="it offers 7 of 8 nvidia.com/gpu")
    assert played.look([], NOW + 630)[0].why == "it offers 7 of 8 nvidia.com/gpu"
    played.change("n00", missing="")
    (lifted,) = played.look([], NOW + 645)
    assert (lifted.action, lifted.why) == ("lift", "repaired: new GPU")
    assert actions(played.look([fault("n00")], NOW + 660)) == [("withhold", "n00")]  # one in five, in an hour


def test_a_restart_counts_the_quiet_anew() -> None:
    played = Played(nodes(5))
    played.look([fault("n00")], NOW)
    played.change("n00", repaired="yes")
    assert {action for action, _ in quiet_after(played, NOW + 15, 500)} == {"wait"}
    played.restart()
    assert {action for action, _ in quiet_after(played, NOW + 530, 585)} == {"wait"}
    assert actions(played.look([], NOW + 1130)) == [("lift", "n00")]


def test_a_taint_that_somebody_took_comes_back() -> None:
    played = Played(nodes(5))
    played.look([fault("n00")], NOW)
    played.change("n00", taint=None)
    assert actions(played.look([fault("n00")], NOW + 15)) == [("restore", "n00")]


def test_a_new_node_of_an_old_name_does_not_inherit_the_fault() -> None:
    played = Played(nodes(20))
    played.look([fault("n00")], NOW)
    played.there["n00"] = dataclasses.replace(node("n00"), uid="other", created=NOW + 60)
    assert played.look([fault("n00")], NOW + 75) == []
    # But one that still has it when every old one has faded has it.
    assert actions(played.look([fault("n00")], NOW + 700)) == [("cordon", "n00")]


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
        st.booleans(),  # the loop is started anew
        st.booleans(),  # what it decides fails
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


def test_a_worse_fault_beside_one_that_was_acted_on_makes_the_latter_no_news() -> None:
    """The node's record is written anew, and was all that still knew of the first one."""
    played, first, worse = Played(nodes(20)), fault("n00", "reset", "48"), fault("n00", "replace", "79")
    assert actions(played.look([first], NOW)) == [("cordon", "n00")]
    assert played.look([], NOW + 700) == []
    assert actions(played.look(sorted([first, worse]), NOW + 715)) == [("cordon", "n00")]
    assert played.look(sorted([first, worse]), NOW + 730) == []


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


GOOD = {
    "metric": {"node": "n", "class": "reset", "gpu": "3", "UUID": "GPU-3", "xid": "48", "reason": "xid"},
    "value": [1, "1"],
}


def answer(*found: Any, status: str = "success", kind: str = "vector") -> dict[str, Any]:
    return {"status": status, "data": {"resultType": kind, "result": list(found)}}


def test_an_answer_is_read() -> None:
    assert [tuple(vars(one).values()) for one in asked.read(answer(GOOD))] == [
        ("n", "3", "GPU-3", "48", "reset", "xid")
    ]
    assert asked.read(answer()) == []
    assert asked.read(answer({**GOOD, "value": [1, "0"]})) == []
    nowhere = {**GOOD, "metric": {**GOOD["metric"], "node": ""}}
    assert len(asked.read(answer(nowhere, GOOD))) == 1
    lost = {"metric": {"node": "n", "class": "replace", "reason": "gpu_lost"}, "value": [1, "1"]}
    (found,) = asked.read(answer(lost))
    assert found.words == "GPU ?: gpu_lost, class replace"


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        [],
        "x",
        {"status": "error", "error": "x"},
        answer(status="error"),
        answer(kind="matrix"),
        {"status": "success", "data": None},
        answer({**GOOD, "metric": {"node": "n"}}),
        answer({**GOOD, "metric": {**GOOD["metric"], "class": "terrible"}}),
        answer({**GOOD, "value": [1]}),
        answer({**GOOD, "value": [1, "much"]}),
        answer(GOOD, {"metric": {}, "value": [1, "1"]}),
    ],
)
def test_nonsense_is_no_answer(nonsense: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        asked.read(nonsense)
