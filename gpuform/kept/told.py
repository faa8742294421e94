"""SIGTERM and SIGINT as an event."""

from __future__ import annotations

import signal
import threading
from types import FrameType


def told_to_stop() -> threading.Event:
    """An event that SIGTERM or SIGINT sets; call it from the main thread."""
    over = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    return over
