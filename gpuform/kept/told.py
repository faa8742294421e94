"""Being told to stop."""

from __future__ import annotations

import signal
import threading
from types import FrameType


def told_to_stop() -> threading.Event:
    """Set from SIGTERM or SIGINT on; to be called by the main thread."""
    over = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    return over
