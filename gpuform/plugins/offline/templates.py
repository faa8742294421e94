"""Outputs as the tables have them, and what they are filled with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def filled(template: Any, facts: Mapping[str, Any]) -> Any:
    """The template with the facts in the place of their names in braces, at any depth."""
    if isinstance(template, Mapping):
        return {key: filled(item, facts) for key, item in template.items()}
    if isinstance(template, list):
        return [filled(item, facts) for item in template]
    return template.format_map(facts) if isinstance(template, str) else template


def uuid(digest: str) -> str:
    """The first thirty-two hexadecimal digits as a UUID is written."""
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def address(number: int) -> str:
    """An address that nobody has: of TEST-NET-2 (RFC 5737)."""
    return f"198.51.100.{number % 254 + 1}"
