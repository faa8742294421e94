"""A rehearsal's outcome as JSON; the format is documented in docs/howto/rehearse.md and stable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from gpuform.usage.node_prices import Amount
from gpuform.usage.queues import QueueOutcome
from gpuform.usage.rehearsal import Cell, Outcome

_DIGITS = {
    **dict.fromkeys(("usd_per_hour", "idle_usd_per_hour"), 4),
    **dict.fromkeys(("offers", "used", "idle"), 3),
    **dict.fromkeys(("seconds", "at", "begin", "ready", "end", "cold"), 1),
}
"""To how many digits a number is rounded, by the name of its field."""
_KEYS = (
    *("stack", "kind", "karpenter", "autoscaler", "failed", "steps", "prices", "seconds", "usd_per_hour"),
    *("unpriced", "pools", "pods", "queues", "switched_on", "refusals", "jobs", "shrink", "loads"),
    *("shortened", "troubles", "nodes", "timeline", "rss_bytes", "measured", "simulated", "real"),
    "cannot_show",
)


def document(outcome: Outcome) -> dict[str, Any]:
    counted = outcome.way == "counted"
    derived: dict[str, Any] = {
        "karpenter": "none" if counted else outcome.way,
        "autoscaler": "counted" if counted else "none",
        "pods": {"wanted": outcome.pods, "placed": outcome.placed, "pending": outcome.pending},
        "switched_on": outcome.played,
        "cannot_show": outcome.blind,
    }
    return {key: _plain(derived.get(key, getattr(outcome, key, None)), key) for key in _KEYS}


def _plain(value: Any, name: str = "") -> Any:
    """A value as JSON has it, rounded by the ``name`` of its field."""
    match value:
        case Amount():
            return {key: _plain(getattr(value, key), key) for key in ("offers", "used", "idle")}
        case Cell():
            return {
                "resource": value.resource,
                "namespace": value.namespace or None,
                "pod": value.pod or None,
            }
        case QueueOutcome():
            row = _plain(value.status)
            del row["admitted"], row["waiting"]
            usd = _plain(value.usd_per_hour, "usd_per_hour")
            return {**row, "usd_per_hour": usd, "workloads": _plain(value.workloads)}
        case float():
            return round(value, _DIGITS[name]) if name in _DIGITS else value
        case tuple():
            return [_plain(item, name) for item in value]
        case Mapping():
            return {key: _plain(item, name) for key, item in value.items()}
    if is_dataclass(value):
        return {item.name: _plain(getattr(value, item.name), item.name) for item in fields(value)}
    return value
