"""What restores a node that the health loop has taken out of use, and what does not."""

from __future__ import annotations

import dataclasses

import pytest

from tests.incluster.played_judge import NOW, Played, actions, fault, node, nodes

pytestmark = pytest.mark.unit


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
