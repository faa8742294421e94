"""Every row of the sources has tests that exist, and its outcome is that of these tests."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.sources.rows import OPEN, ROWS
from tests.tiers import outcome

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[1]


def test_every_row_is_named() -> None:
    assert list(ROWS) == list(range(1, 26))
    assert {row for row, tests in ROWS.items() if not tests} <= set(OPEN)


@pytest.mark.parametrize("row", ROWS)
def test_the_row_has_its_tests(row: int) -> None:
    for named in ROWS[row]:
        file, _, test = named.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, named


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({"a": {"passed"}, "b": {"skipped"}}, "passed"),
        ({"a": {"passed", "failed"}, "b": {"passed"}}, "failed"),
        ({"a": {"skipped"}}, "skipped"),
        ({"c": {"passed"}}, "not run"),
    ],
)
def test_a_row_is_what_its_tests_are(outcomes: dict[str, set[str]], expected: str) -> None:
    assert outcome(("a", "b"), outcomes) == expected
