"""Over many days with a hostile environment no healthy node is removed, no broken one forgotten."""

from __future__ import annotations

import pytest

from tests.incluster.played_days import Days


def played(mode: str, seed: int, days: float) -> Days:
    found = Days(seed, mode)
    found.run(days)
    return found


@pytest.mark.unit
@pytest.mark.parametrize(("mode", "days"), [("replace", 12), ("ticket", 4), ("cordon", 2)])
def test_no_healthy_node_is_removed_and_no_broken_one_forgotten(mode: str, days: float) -> None:
    found = played(mode, 1, days)
    assert {"broke", "cordoned", "repaired", "returned", "request failed"} <= found.kinds.keys()


@pytest.mark.nightly
@pytest.mark.unit
@pytest.mark.parametrize("seed", range(4))
def test_no_healthy_node_is_removed_in_a_thousand_days(seed: int) -> None:
    found = played("replace", seed, 250)
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
