"""What keepers beside a cluster are told: their arguments, and SIGTERM or SIGINT as an event."""

from __future__ import annotations

import argparse
import signal
import threading
from pathlib import Path
from types import FrameType


def arguments(module: str, said: str | None) -> argparse.ArgumentParser:
    """A parser with what every keeper of programs needs; ``said`` is the description."""
    parser = argparse.ArgumentParser(prog=module, description=said)
    for name, what in (
        ("--kubeconfig", "kubeconfig of the cluster; the programs use the same server"),
        ("--pki", "folder with ca.crt, admin.crt and admin.key"),
        ("--home", "folder for all files; its folder bin has links to the programs"),
        ("--logs", "folder for the programs' logs"),
    ):
        parser.add_argument(name, type=Path, required=True, help=what)
    return parser


def told_to_stop() -> threading.Event:
    """An event that SIGTERM or SIGINT sets; call it from the main thread."""
    over = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    return over
