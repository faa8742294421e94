"""Contradictions by type of value, one a line: each is refused at its place."""

from __future__ import annotations

import re
from typing import Any

import pytest

from infra.config import parse
from infra.model.errors import InputError
from tests.config.edits import changed
from tests.config.tables import GOOD, read

pytestmark = pytest.mark.unit

ROWS = read("contradictions")


def test_the_table_is_long_and_repeats_nothing() -> None:
    assert len({repr(row) for row in ROWS}) == len(ROWS) > 150


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]} {row[1]} {row[2]!a}"[:80] for row in ROWS])
def test_a_contradiction_is_refused_at_its_place(row: list[Any]) -> None:
    kind, place, value, *path = row
    with pytest.raises(InputError) as caught:
        parse(changed(GOOD[kind], {"at": place, "put": value}))
    assert caught.value.path == (path[0] if path else _path(place))


def _path(place: str) -> str:
    return re.sub(r"/(\d+)", r"[\1]", place).replace("/", ".")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8879", "http://localhost:8879/a", "http://[::1]:8879"])
def test_charts_may_come_by_http_from_this_machine_alone(url: str) -> None:
    assert parse(changed(GOOD["existing"], {"at": "gpu_operator/repository", "put": url}))


@pytest.mark.parametrize(
    ("quota", "said"),
    [
        ({"t4": 4}, ()),
        ({"t4": 5}, ("5 nvidia.com/gpu.shared, of which all nodes offer 4, limit nothing; use 4 or less",)),
        ({"mig": {"3g.20gb": 2}}, ("2 nvidia.com/mig-3g.20gb, of which all nodes offer 1",)),
    ],
)
def test_a_quota_that_limits_nothing_gets_a_warning(quota: dict[str, Any], said: tuple[str, ...]) -> None:
    edit = {"at": "namespaces", "put": [{"name": "a", "quota": quota}]}
    found = parse(changed(GOOD["embedded"], edit)).warnings
    assert len(found) == len(said)
    for warning, fact in zip(found, said, strict=True):
        assert warning.startswith(f"namespaces[0].quota: {fact}")
