"""Waiting in tests: one loop, and one factor for all its bounds."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE = float(os.environ.get("GPUFORM_TEST_PATIENCE", "1"))
"""Factor of every bound in seconds; continuous integration sets a larger one for busy machines."""


def until(
    look: Callable[[], Found],
    good: Callable[[Found], object] = bool,
    seconds: float = 40,
    what: str | Callable[[], str] = "",
) -> Found:
    """The first result of ``look`` that is good. OSError counts as not good: a server may not answer yet.

    Args:
        look: called every 0.05 s, less often the longer it takes, up to every 0.5 s.
        good: judges a result; the default accepts any true value.
        seconds: bound, which is multiplied with ``PATIENCE``.
        what: what is missing, for the message, which also has the last result.

    Raises:
        AssertionError: at the bound.
    """
    began, last = time.monotonic(), "nothing"
    while True:
        try:
            if good(found := look()):
                return found
            last = repr(found)
        except OSError as error:
            last = repr(error)
        waited = time.monotonic() - began
        if waited > seconds * PATIENCE:
            said = what if isinstance(what, str) else what()
            raise AssertionError(f"after {waited:.0f} s: {said and said + ': '}{last}")
        time.sleep(min(0.05 + waited / 50, 0.5))


def counted(kubectl: Callable[..., str], metric: str, **labels: str) -> float:
    """One of the API server's counters, summed over all its series with these labels.

    Proof that a client has sent another request: ``apiserver_request_total`` for authorized requests,
    ``authorization_attempts_total`` for refused ones.
    """
    rows = re.findall(rf"^{metric}{{(.*)}} (\S+)$", kubectl("get", "--raw", "/metrics"), re.MULTILINE)
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(float(count) for row, count in rows if all(label in row for label in wanted))
