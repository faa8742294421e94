"""Lists in messages."""

from __future__ import annotations

from collections.abc import Sequence


def some(found: Sequence[str], most: int = 5, between: str = ", ") -> str:
    """The first entries, and the number of the others: ``a, b and 3 more``; empty without any."""
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return between.join(found[:most]) + more
