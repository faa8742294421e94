"""docs/reference/magnum-changes.md says what the guards' table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra import magnum_docs

pytestmark = pytest.mark.unit

PAGE = Path(__file__).parents[2] / "docs/reference/magnum-changes.md"


def rows() -> dict[str, str]:
    cells = [
        line.strip("| ").split(" | ") for line in magnum_docs.page().splitlines() if line.startswith("| `")
    ]
    return {field.strip("`"): how for field, how, *_ in cells}


def test_the_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == magnum_docs.page()


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("name", "**replaces the cluster**"),
        ("cluster.kind", "**deletes the cluster**"),
        ("cluster.workers.nodes", "in place"),
        ("cluster.labels", "**replaces the cluster**"),
        ("cluster.template", "upgraded with driver `capi`; else **replaces the cluster**"),
        ("pools[].nodes", "in place"),
        ("pools[].machine", "**replaces the group**"),
    ],
)
def test_what_replaces_is_said(field: str, said: str) -> None:
    assert rows()[field] == said
