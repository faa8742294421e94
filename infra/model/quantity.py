"""Numbers of extended resources, as the API server writes them."""

from __future__ import annotations

_SCALES = {"k": 10**3, "M": 10**6, "G": 10**9}


def whole(text: object) -> int:
    """A count; the API server writes whole thousands as 1k. Raises ValueError for anything else."""
    said = str(text)
    scale = _SCALES.get(said[-1:], 1)
    return int(said if scale == 1 else said[:-1]) * scale
