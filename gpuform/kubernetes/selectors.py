"""Whether a LabelSelector of Kubernetes selects an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def selects(selector: Mapping[str, Any] | None, tags: Mapping[str, str]) -> bool:
    """None selects nothing, an empty one everything."""
    if selector is None or not (selector.get("matchLabels") or {}).items() <= dict(tags).items():
        return False
    for term in selector.get("matchExpressions") or ():
        value, values = tags.get(term["key"]), term.get("values") or ()
        passed = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not passed.get(term["operator"], False):
            return False
    return True
