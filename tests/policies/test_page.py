from __future__ import annotations

from pathlib import Path

import pytest

from policies.docs import page
from policies.pack import RULES

pytestmark = pytest.mark.unit


def test_the_page_is_current() -> None:
    assert (Path(__file__).parents[2] / "docs/reference/policies.md").read_text() == page(), "run `make docs`"


def test_every_rule_says_what_to_do() -> None:
    for rule in RULES:
        assert rule.title.endswith("."), rule.id
        assert len(rule.remedy) > 10, rule.id
        assert not rule.remedy.endswith("."), rule.id
