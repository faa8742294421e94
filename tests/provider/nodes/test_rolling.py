"""Rolling over nodes: how many at a time, in which order, and what a failure leaves unchanged."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Cancelled
from gpuform.provider.nodes.rolling import at_once, roll

pytestmark = pytest.mark.unit

NAMES = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("budget", "nodes", "expected"),
    [(1, 5, 1), (3, 5, 3), (9, 5, 9), ("25%", 8, 2), ("25%", 7, 1), ("25%", 3, 1), ("100%", 3, 3)],
)
def test_a_share_is_rounded_down_to_one_at_least(budget, nodes, expected):
    assert at_once(budget, nodes) == expected


class Played:
    """Nodes that take three turns of the loop each; ``ends`` maps names to outcomes."""

    def __init__(self, **ends):
        self.ends, self.begun, self.ended, self.busy, self.most = ends, [], [], 0, 0

    async def one(self, name):
        self.begun.append(name)
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if name in self.ends:
                raise self.ends[name]
        finally:
            self.busy -= 1
            self.ended.append(name)
        return name == "b"


@pytest.mark.parametrize(("width", "most"), [(1, 1), (2, 2), (9, 5)])
def test_no_more_than_the_budget_are_under_way(width, most):
    played = Played()
    rolled = asyncio.run(roll(NAMES, width, played.one))
    assert (played.most, sorted(rolled.ready), rolled.changed, rolled.failures) == (most, NAMES, True, [])


def test_after_a_failure_none_is_begun_and_the_others_go_to_their_end():
    played = Played(a=OperationError("node a: no"))
    rolled = asyncio.run(roll(NAMES, 2, played.one))
    assert played.begun == played.ended == ["a", "b"]
    assert rolled.ready == ["b"]
    assert rolled.failures == ["node a: no", "not started after that: c, d, e"]


def test_a_cancel_is_raised_when_all_have_stopped():
    played = Played(a=Cancelled("x"), b=Cancelled("x"))
    with pytest.raises(Cancelled):
        asyncio.run(roll(NAMES, 2, played.one))
    assert played.begun == played.ended == ["a", "b"]


def test_an_error_of_ours_ends_them_all_as_itself():
    with pytest.raises(KeyError):
        asyncio.run(roll(NAMES, 2, Played(a=KeyError("x")).one))
