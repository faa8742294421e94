"""``python -m lab.sidecars.second_scheduler --kubeconfig PATH --pki DIR --scheduler PATH --log PATH``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lab.sidecars.second_scheduler.keeper import Keeper
from lab.sidecars.shared.child import told_to_stop
from lab.sidecars.shared.server import Server


def main() -> int:
    parser = argparse.ArgumentParser(prog="lab.sidecars.second_scheduler", description=__doc__)
    for name, said in (
        ("--kubeconfig", "kubeconfig of the cluster; the scheduler uses the same server"),
        ("--pki", "folder with ca.crt, admin.crt and admin.key"),
        ("--scheduler", "the program; its configuration is written into its folder"),
        ("--log", "file that the scheduler writes to"),
    ):
        parser.add_argument(name, type=Path, required=True, help=said)
    args = parser.parse_args()
    Keeper(Server(args.kubeconfig, args.pki), args.scheduler, args.log).run(told_to_stop())
    return 0


if __name__ == "__main__":
    sys.exit(main())
