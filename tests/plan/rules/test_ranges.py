"""Every range holds more than one sample, however seldom rules are evaluated."""

from __future__ import annotations

import re

import pytest

from infra.plan.rules import groups
from tests.plan.rules import world

pytestmark = pytest.mark.unit
UNITS = {"m": 1, "h": 60}
LEAST = 3
"""Minutes: groups are evaluated every two minutes at most (``monitoring.interval``), each at its own moment.

A range of one minute called every GPU of a stack with a longer interval lost, and on Prometheus 3, whose
ranges leave their first moment out, of one with an interval of a minute as well.
"""


def test_no_range_may_be_empty_between_two_evaluations() -> None:
    short = {
        (rule.get("record") or rule["alert"], found)
        for group in groups(world.environment())
        for rule in group["rules"]
        for number, unit in re.findall(r"\[(\d+)([mh])[\]:]", rule["expr"])
        if int(number) * UNITS[unit] < LEAST
        for found in [number + unit]
    }
    assert short == set()
