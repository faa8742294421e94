"""How the health loop reads a node: invalid values on one node must not stop it for all."""

from __future__ import annotations

from typing import Any

import pytest

from infra.incluster import acting, judge
from tests.incluster.played_judge import CORDON, NOW, State, fault

pytestmark = pytest.mark.unit


def noted(record: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "n",
            "uid": "u",
            "annotations": {acting.RECORD: record},
        },
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
