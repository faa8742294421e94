"""The health loop: keeps new pods off nodes with a broken GPU, and has the nodes replaced.

    health.py [--every SECONDS] [--account FOLDER] [--listen HOST:PORT] [--prometheus URL] [--server URL]
              SETTINGS

SETTINGS is a JSON file with the declared settings; the options are for runs outside a pod. Every round asks
Prometheus for the active faults and for the nodes with all GPUs measured, and nothing else; if Prometheus is
unreachable or its answer invalid, nothing is done. Actions are stored in a ConfigMap before a node is
touched: a loop that ends in between has counted them. Every action is an event, a line of JSON on stdout, and
counted at ``/metrics``.

``judge.py`` has the decisions. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # python3 -I does not search this folder
if TYPE_CHECKING:
    from infra.incluster import cluster, told
    from infra.incluster.loop import Loop
else:
    import cluster
    import told
    from loop import Loop

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SILENT = 4  # missed rounds after which earlier observations are discarded

Json = dict[str, Any]


def steady(wall: Callable[[], float], elapsed: Callable[[], float]) -> Callable[[], float]:
    """Seconds since 1970 by ``wall`` at the start: a step of the machine's clock shortens no window."""
    begin = wall() - elapsed()
    return lambda: begin + elapsed()


def main() -> None:
    """Run rounds until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("settings", type=Path)
    parser.add_argument("--every", type=float, default=15.0)
    parser.add_argument("--account", type=Path, default=ACCOUNT)
    parser.add_argument("--listen", default="")
    parser.add_argument("--prometheus", default="")
    parser.add_argument("--server", default="")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # PID 1 of a container has no default handler
    declared: Json = json.loads(args.settings.read_text())
    declared["prometheus"] = args.prometheus or declared["prometheus"]
    host, _, port = (args.listen or declared["listen"]).rpartition(":")
    metrics, every = told.Metrics(), args.every
    loop = Loop(cluster.Cluster(args.account, args.server), declared, metrics)
    last, clock = time.monotonic(), steady(time.time, time.monotonic)

    def alive() -> bool:
        return bool(time.monotonic() - last < max(60.0, SILENT * every))

    told.serve((host, int(port)), metrics, alive)
    while True:
        if time.monotonic() - last > SILENT * every + cluster.TIMEOUT_S:
            loop.silent()
        loop.look(clock())
        last = time.monotonic()
        time.sleep(every)


if __name__ == "__main__":
    main()
