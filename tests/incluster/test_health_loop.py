"""What the health loop reads and does to a node, also on a second try; what restores one; days of it.

One invalid value on a node must not stop it for all. Over many days with a hostile environment no healthy
node is removed, no broken one forgotten.
"""

from __future__ import annotations

import dataclasses
import json
import urllib.request
from typing import Any

import pytest

from infra.incluster import acting, cases, judge, reporting
from infra.incluster.acting import RECORD, REPAIRED, Hand
from infra.incluster.cases import Step
from tests.incluster.played_cluster import PlayedCluster
from tests.incluster.played_days import Days
from tests.incluster.played_judge import CORDON, NOW, Played, State, actions, fault, node, nodes

pytestmark = pytest.mark.unit


@pytest.fixture
def server() -> PlayedCluster:
    found = PlayedCluster()
    found.add("n", "uid-n", "burst", "aws:///1", karpenters=True)
    return found


def claim(server: PlayedCluster, machine: str, name: str = "claim") -> None:
    meta = {"name": name, "uid": name}
    server.claims[name] = {"metadata": meta, "status": {"nodeName": "n", "providerID": machine}}


def do(server: PlayedCluster, action: str) -> str:
    step = Step(action, "n", "replace", (fault("n"),), "", NOW)
    return Hand(server).do(step, server.nodes_by_name["n"], NOW)


def test_a_removal_is_requested_once(server: PlayedCluster) -> None:
    removed: list[Any] = []
    server.on_delete = removed.append
    claim(server, "aws:///1")
    assert do(server, "replace") == "NodeClaim claim deleted"
    assert do(server, "replace") == "NodeClaim claim is being deleted"
    assert len(removed) == 1
    assert not server.maps


def test_the_claim_of_another_machine_with_the_same_node_name_is_left_alone(server: PlayedCluster) -> None:
    claim(server, "aws:///2")
    assert do(server, "replace") == "ticket gpu-ticket-n"
    assert "deletionTimestamp" not in server.claims["claim"]["metadata"]


def test_a_second_try_leaves_what_was_noted_since_the_first(server: PlayedCluster) -> None:
    do(server, "cordon")
    server.annotate("n", **{REPAIRED: "new GPU"})
    server.nodes_by_name["n"]["status"]["nodeInfo"]["bootID"] = "boot-1"
    assert do(server, "ticket") == "ticket gpu-ticket-n"
    notes = server.nodes_by_name["n"]["metadata"]["annotations"]
    assert notes[REPAIRED] == "new GPU"
    assert json.loads(notes[RECORD])["boot"] == "boot-0"
    theirs = {"key": "team", "value": "a", "effect": "NoExecute"}
    server.touch("n", taints=[theirs])
    do(server, "ticket")
    assert server.taint("n") == "replace"
    assert theirs in server.nodes_by_name["n"]["spec"]["taints"]


@pytest.mark.parametrize("host", ["", "[::1]", "127.0.0.1"])
def test_its_endpoint_answers_on_ipv6_and_ipv4(host: str) -> None:
    server = reporting.serve((host, 0), reporting.Metrics(), lambda: True)
    try:
        for address in (host,) if host else ("[::1]", "127.0.0.1"):
            url = f"http://{address}:{server.server_port}/healthz"
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.status == 200
    finally:
        server.shutdown()
        server.server_close()


GOOD = {
    "metric": {"node": "n", "class": "reset", "gpu": "3", "UUID": "GPU-3", "xid": "48", "reason": "xid"},
    "value": [1, "1"],
}


def answer(*found: Any, status: str = "success", kind: str = "vector") -> dict[str, Any]:
    return {"status": status, "data": {"resultType": kind, "result": list(found)}}


def test_an_answer_is_read() -> None:
    assert [tuple(vars(one).values()) for one in cases.read(answer(GOOD))] == [
        ("n", "3", "GPU-3", "48", "reset", "xid")
    ]
    assert cases.read(answer()) == []
    assert cases.read(answer({**GOOD, "value": [1, "0"]})) == []
    nowhere = {**GOOD, "metric": {**GOOD["metric"], "node": ""}}
    assert len(cases.read(answer(nowhere, GOOD))) == 1
    lost = {"metric": {"node": "n", "class": "replace", "reason": "gpu_lost"}, "value": [1, "1"]}
    (found,) = cases.read(answer(lost))
    assert found.words == "GPU ?: gpu_lost, class replace"


def test_the_nodes_in_an_answer_are_read() -> None:
    found = [{"metric": {"node": name}, "value": [1, "8"]} for name in ("n", "m")]
    assert cases.names(answer(*found)) == {"n", "m"}
    assert cases.names(answer()) == frozenset()
    for nonsense in (None, [], {"status": "error"}, answer(kind="matrix"), answer({"metric": {}})):
        with pytest.raises(ValueError, match=r"\w"):
            cases.names(nonsense)


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
        cases.read(nonsense)


def noted(record: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "uid": "u", "annotations": {acting.RECORD: record}},
        "spec": {},
        "status": {},
    }


@pytest.mark.parametrize(
    "record",
    [
        "no JSON",
        "[]",
        "{}",
        '{"class": "reset", "faults": 5}',
        '{"class": "reset", "faults": null}',
        '{"class": "reset", "faults": [[]]}',
    ],
)
def test_a_record_that_nobody_can_read_is_none_and_the_loop_goes_on(record: str) -> None:
    node = acting.read(noted(record), {}, NOW)
    assert node.record is None
    steps, _ = judge.decide(CORDON, [node], [fault("n")], State(), {}, NOW)
    assert [step.action for step in steps] == ["cordon"]


def test_a_record_of_the_loops_own_is_read() -> None:
    node = acting.read(
        noted('{"class": "reset", "faults": ["n|GPU-n-0|79|reset|xid"], "boot": "b"}'), {}, NOW
    )
    assert node.record is not None
    assert node.record["faults"] == ["n|GPU-n-0|79|reset|xid"]


def quiet_after(played: Played, start: float, seconds: float) -> list[tuple[str, str]]:
    """Actions during a time without faults, with polls every 15 s."""
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
    assert played.look([fault("n00")], NOW + 15)[0].why == f"fault still active: {fault('n00').words}"
    # Silent since NOW + 15, so that it is over at NOW + 615; a lost GPU is silent, too.
    assert {action for action, _ in quiet_after(played, NOW + 30, 570)} == {"wait"}
    played.change("n00", missing="it offers 7 of 8 nvidia.com/gpu")
    assert played.look([], NOW + 630)[0].why == "it offers 7 of 8 nvidia.com/gpu"
    played.change("n00", missing="")
    (lifted,) = played.look([], NOW + 645)
    assert (lifted.action, lifted.why) == ("lift", "repaired: new GPU")
    assert actions(played.look([fault("n00")], NOW + 660)) == [("withhold", "n00")]  # one in five, in an hour


def test_what_nobody_measures_is_not_well() -> None:
    played = Played(nodes(5))
    played.look([fault("n00")], NOW)
    played.change("n00", repaired="new GPU", measured=False)
    assert quiet_after(played, NOW + 15, 7200) == [("wait", "n00")] * 481
    assert (
        played.look([], NOW + 7230)[0].why == "not all of its GPUs are measured, so a fault could be missed"
    )
    played.change("n00", measured=True)  # the quiet time starts here: before, nothing was measured
    assert {action for action, _ in quiet_after(played, NOW + 7245, 570)} == {"wait"}
    assert actions(played.look([], NOW + 7845)) == [("lift", "n00")]


def test_a_fault_that_hides_behind_a_silent_exporter_is_the_same_when_it_shows_again() -> None:
    played = Played(nodes(20))
    played.look([fault("n00")], NOW)
    played.change("n00", measured=False)
    assert quiet_after(played, NOW + 15, 1200) == []
    played.change("n00", measured=True, record=None, taint=None)  # a person removed both
    assert played.look([fault("n00")], NOW + 1230) == []


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
    played.there["n00"] = dataclasses.replace(node("n00"), uid="other", since=NOW + 60)
    assert played.look([fault("n00")], NOW + 75) == []
    # But a fault that is still there after all old ones have faded counts.
    assert actions(played.look([fault("n00")], NOW + 700)) == [("cordon", "n00")]


def lived(mode: str, seed: int, days: float) -> Days:
    found = Days(seed, mode)
    found.run(days)
    return found


@pytest.mark.parametrize(("mode", "days"), [("replace", 12), ("ticket", 4), ("cordon", 2)])
def test_no_healthy_node_is_removed_and_no_broken_one_forgotten(mode: str, days: float) -> None:
    found = lived(mode, 1, days)
    assert {"broke", "cordoned", "repaired", "returned", "request failed"} <= found.kinds.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_no_healthy_node_is_removed_in_a_thousand_days(seed: int) -> None:
    found = lived("replace", seed, 250)
    assert found.kinds.keys() == {
        "broke",
        "cordoned",
        "removed",
        "ticket",
        "repaired",
        "returned",
        "request failed",
        "killed",
    }
