"""Quantities of resources as Kubernetes writes them, and dotted versions; standard library alone."""

from __future__ import annotations

import re

_SCALES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
           "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}  # fmt: skip
_QUANTITY = re.compile(r"([0-9.]+)(m|k|M|G|T|Ki|Mi|Gi|Ti)?")
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*)")


def quantity(text: object) -> float:
    """A Kubernetes quantity as a number: ``1500m`` is 1.5, ``2Ki`` 2048. Raises ValueError for other text."""
    found = _QUANTITY.fullmatch(str(text))
    if not found:
        raise ValueError(f"{text!r} is not a quantity")
    return float(found[1]) * _SCALES[found[2] or ""]


def whole(text: object) -> int:
    """A count or an amount of bytes; the API server writes whole thousands as 1k. ValueError for others."""
    found = quantity(text)
    if not found.is_integer():
        raise ValueError(f"{text!r} is not a whole number")
    return int(found)


def numbers(version: str) -> tuple[int, ...]:
    """A dotted version for comparison: ``v580.95.05-1`` as (580, 95, 5); empty for text without one."""
    found = _VERSION.match(version)
    return tuple(map(int, found[1].split("."))) if found else ()
