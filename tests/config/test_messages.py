"""Each row of the tables is refused at its place; the first rows of each table show the whole message."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from tests.config.edits import message
from tests.config.tables import ENVIRONMENTS, ROWS, TABLES

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("mapping", ENVIRONMENTS)
def test_the_good_ones_are_good_and_the_declared_text_says_the_same_again(mapping: dict[str, Any]) -> None:
    env = parse(mapping)
    assert parse(env.resolved()) == env


def test_the_tables_are_long_and_repeat_nothing() -> None:
    rows = [(table, repr(row)) for table in TABLES for row in ROWS[table]]
    assert len(set(rows)) == len(rows) > 900


@pytest.mark.parametrize(
    ("table", "row"),
    [
        pytest.param(table, row, id=f"{table} {number} {row.get('at', '')}")
        for table in TABLES
        for number, row in enumerate(ROWS[table])
    ],
)
def test_message(table: str, row: dict[str, Any]) -> None:
    said = message(TABLES[table](row))
    assert said == row.get("whole", said)
    assert said.startswith(row.get("said", said))
