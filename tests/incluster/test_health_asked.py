"""Which responses of Prometheus the health loop accepts, and which not."""

from __future__ import annotations

from typing import Any

import pytest

from infra.incluster import asked

pytestmark = pytest.mark.unit

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


def test_the_nodes_in_an_answer_are_read() -> None:
    found = [{"metric": {"node": name}, "value": [1, "8"]} for name in ("n", "m")]
    assert asked.names(answer(*found)) == {"n", "m"}
    assert asked.names(answer()) == frozenset()
    for nonsense in (None, [], {"status": "error"}, answer(kind="matrix"), answer({"metric": {}})):
        with pytest.raises(ValueError, match=r"\w"):
            asked.names(nonsense)


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
