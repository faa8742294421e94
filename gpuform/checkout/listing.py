"""Lists, counts and paths in messages."""

from __future__ import annotations

from collections.abc import Sequence


def abbreviate(items: Sequence[str], limit: int = 5, separator: str = ", ") -> str:
    """The first entries, and the number of the others: ``a, b and 3 more``; empty without any."""
    more = f" and {len(items) - limit} more" if len(items) > limit else ""
    return separator.join(items[:limit]) + more


def count_of(number: int, noun: str) -> str:
    """As in ``1 NodeClaim``, ``2 NodeClaims``, ``2 Ingresses``."""
    plural = "es" if noun.endswith("ss") else "s"
    return f"{number} {noun}{'' if number == 1 else plural}"


def key_path(path: str, key: str) -> str:
    """The path of a key, in the engine's syntax."""
    return f'{path}["{key}"]' if set(key) & set('."[]') else f"{path}.{key}"
