"""Time made to pass faster: every duration of rules and scrapes divided, so that an alert need not be waited
for. What is written as a number of seconds in an expression (``predict_linear(x[1h], 3600)``) stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

LEAST_S = 1.0
"""No duration is made shorter than this, and none that is shorter is made longer."""
LEAST_RANGE_S = 5.0
"""The same for a range: one of a second would hold one sample or none of what is scraped every second."""

_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")
_TOKEN = re.compile(
    r"""
    (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<comment>\#[^\n]*)
    |(?P<range>\[[^\]]*\])
    |(?P<name>[A-Za-z_:][A-Za-z0-9_:.]*)
    |(?P<number>[0-9][0-9A-Za-z_.]*)
    """,
    re.VERBOSE | re.DOTALL,
)

Json = dict[str, Any]


def seconds(text: str) -> float:
    """A duration as Prometheus writes it (``1h30m``). Raises ValueError for what is none."""
    if text == "0":
        return 0.0
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration")
    return sum(int(count) * _MS[unit] for count, unit in _PART.findall(text)) / 1000


def paced(text: str, pace: float, least_s: float = LEAST_S) -> str:
    """The duration divided by ``pace``; the same text where ``pace`` is 1."""
    if pace == 1:
        return text
    before = seconds(text)
    after = min(before, max(before / pace, least_s))
    return f"{after:.0f}s" if after == int(after) else f"{after * 1000:.0f}ms"


def expression(text: str, pace: float) -> str:
    """A PromQL expression with its ranges, steps and offsets divided; strings, comments and names stay."""
    if pace == 1:
        return text

    def replaced(token: re.Match[str]) -> str:
        if token["range"]:
            span, colon, step = token["range"].partition(":")
            return _each(span, pace, LEAST_RANGE_S) + colon + _each(step, pace, LEAST_S)
        if token["number"] and _DURATION.fullmatch(token["number"]):
            return paced(token["number"], pace)
        return token[0]

    return _TOKEN.sub(replaced, text)


def group(rules: Mapping[str, Any], pace: float) -> Json:
    """A group of rules, with everything in it that is a duration divided."""
    found = _fields(rules, ("interval", "query_offset"), pace)
    found["rules"] = [_rule(one, pace) for one in rules.get("rules") or ()]
    return found


def _rule(rule: Mapping[str, Any], pace: float) -> Json:
    found = _fields(rule, ("for", "keep_firing_for"), pace)
    return {**found, "expr": expression(str(rule["expr"]), pace)}


def _fields(document: Mapping[str, Any], names: tuple[str, ...], pace: float) -> Json:
    return {key: paced(str(value), pace) if key in names else value for key, value in document.items()}


def _each(text: str, pace: float, least_s: float) -> str:
    return _DURATION.sub(lambda found: paced(found[0], pace, least_s), text)
