"""Waiting in tests: one loop, and one factor for all its bounds."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

PATIENCE = float(os.environ.get("GPUFORM_TEST_PATIENCE", "1"))
"""Factor of every bound in seconds; continuous integration sets a larger one for machines that are busy."""


def until(
    look: Callable[[], Found],
    good: Callable[[Found], object] = bool,
    seconds: float = 40,
    what: str | Callable[[], str] = "",
) -> Found:
    """The first look that is good. A look that raises OSError is not good: a server may not answer yet.

    Args:
        look: asked every 0.05 s, less often the longer it takes, up to every 0.5 s.
        good: judges a look; the default takes what is true.
        seconds: bound, which is multiplied with ``PATIENCE``.
        what: is not there yet, for the message, which also has the last look.

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
    """One of the API server's counters, over all its series that have these labels.

    A positive sign that a client has asked again: ``apiserver_request_total`` of what got past authorization,
    ``authorization_attempts_total`` of what did not.
    """
    rows = re.findall(rf"^{metric}{{(.*)}} (\S+)$", kubectl("get", "--raw", "/metrics"), re.MULTILINE)
    wanted = [f'{name}="{value}"' for name, value in labels.items()]
    return sum(float(count) for row, count in rows if all(label in row for label in wanted))
