"""The day as of which rules about dates judge."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime

VARIABLE = "GPUFORM_TODAY"


def today() -> date:
    """Today in UTC, or the day in GPUFORM_TODAY; ValueError, with the variable's name, if that is none."""
    value = os.environ.get(VARIABLE)
    if not value:
        return datetime.now(UTC).date()
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"{VARIABLE}: {value!r} is not a day; write it as 2026-11-25") from None
