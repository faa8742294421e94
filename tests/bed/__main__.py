"""``python -m tests.bed up NAME --hosts N``, ``down NAME`` and ``status``: a bed by hand."""

from __future__ import annotations

import argparse
import sys

from tests.bed import Bed, Refused, places, sweep


def main() -> int:
    """Run one command; returns 2 if this machine cannot boot hosts."""
    parser = argparse.ArgumentParser(prog="python -m tests.bed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="boot hosts until there are as many")
    up.add_argument("name")
    up.add_argument("--hosts", type=int, default=1)
    commands.add_parser("down", help="end a bed and forget it").add_argument("name")
    commands.add_parser("status", help="list the beds")
    commands.add_parser("sweep", help="end the beds of killed tests")
    given = parser.parse_args()
    try:
        if given.command == "up":
            Bed(given.name).up(given.hosts)
            _print(Bed(given.name))
        elif given.command == "down":
            Bed(given.name).down()
        elif given.command == "sweep":
            print("".join(f"{name}: taken down\n" for name in sweep()), end="")
        else:
            for name in places.names():
                _print(Bed(name))
    except Refused as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _print(bed: Bed) -> None:
    state = " (its owner has ended)" if bed.abandoned else ""
    print(f"{bed.name}: {bed.folder}{state}")
    for name in ("key", "known_hosts", "ssh_config", "inventory.json"):
        print(f"  {name:15} {bed.folder / name}")
    for host in bed.hosts:
        print(f"  {host.name:15} {host.address} {'running' if host.running else 'off'}")


if __name__ == "__main__":
    sys.exit(main())
