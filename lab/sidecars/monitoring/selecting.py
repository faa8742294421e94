"""Kubernetes' label selectors, as prometheus-operator reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def chosen(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches these labels: None matches nothing, an empty selector everything.

    Raises ValueError for an unknown operator.
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_holds(one, labels) for one in selector.get("matchExpressions") or ())


def _holds(one: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = one["key"], one.get("values") or ()
    match one["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"selector: unknown operator {one['operator']!r}")
