"""Every range holds more than one sample, even at the longest evaluation interval."""

from __future__ import annotations

import re

import pytest

from infra.plan.rules import groups
from tests.plan.rules import world

pytestmark = pytest.mark.unit
UNITS = {"m": 1, "h": 60}
LEAST = 3
"""Minutes: groups are evaluated every two minutes at most (``monitoring.interval``), at different moments.

With a range of one minute, every GPU of a stack with a longer interval was reported lost. On
Prometheus 3, which excludes the start of a range, an interval of one minute failed as well.
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
