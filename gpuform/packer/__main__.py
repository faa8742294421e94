"""``python -m gpuform.packer --kubeconfig PATH --pki DIR --scheduler PATH --log PATH``: run until SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from gpuform.packer.api import Api
from gpuform.packer.keeper import Keeper


def main() -> int:
    """Parse the arguments and run; 0 when told to stop."""
    parser = argparse.ArgumentParser(prog="gpuform.packer", description=__doc__)
    for name, said in (
        ("--kubeconfig", "of the cluster; its server is what the scheduler is told, too"),
        ("--pki", "folder with ca.crt, admin.crt and admin.key"),
        ("--scheduler", "the program; its folder is where its configuration goes"),
        ("--log", "file that the scheduler writes to"),
    ):
        parser.add_argument(name, type=Path, required=True, help=said)
    args = parser.parse_args()
    over = threading.Event()

    def told(number: int, frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, told)
    Keeper(Api(args.kubeconfig, args.pki), args.scheduler, args.log).run(over)
    return 0


if __name__ == "__main__":
    sys.exit(main())
