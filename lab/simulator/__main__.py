"""``python -m lab.simulator --kubeconfig PATH --nvidia-config PATH``: run until SIGTERM.

With ``--metrics-port N`` it also answers scrapes of the simulated nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from lab.simulator.api import Api
from lab.simulator.configs import NvidiaConfig
from lab.simulator.dcgm.exporter import Exporters, Server
from lab.simulator.reconciler import Reconciler


def main() -> int:
    """Return 0 after SIGTERM or SIGINT, 2 for unusable arguments."""
    parser = argparse.ArgumentParser(prog="lab.simulator", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument(
        "--nvidia-config", type=Path, required=True, help="the helper built from toolchain/nvidia-config"
    )
    parser.add_argument("--metrics-port", type=int, default=0, help="loopback port for scrapes; 0: none")
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    args = parser.parse_args()
    for file in (args.kubeconfig, args.nvidia_config):
        if not file.is_file():
            print(f"{file}: no such file; `gpuform local start` creates it", file=sys.stderr)
            return 2
    if not 0 <= args.metrics_port <= 65535:
        print("--metrics-port must be 0 to 65535", file=sys.stderr)
        return 2
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("simulator").setLevel(args.log_level.upper())
    asyncio.run(_run(args.kubeconfig, args.nvidia_config, args.metrics_port))
    return 0


async def _run(kubeconfig: Path, binary: Path, port: int) -> None:
    api, helper = Api(kubeconfig), NvidiaConfig(binary)
    reconciler = Reconciler(api, helper)
    scrapes = None
    try:
        scrapes = Server(Exporters(reconciler.store).scrape, port) if port else None
    except OSError as error:  # the port is taken: without metrics
        logging.getLogger("simulator").error("no metrics on port %s: %s", port, error.strerror)
    task = asyncio.ensure_future(reconciler.run())
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logging.getLogger("simulator").info("stopping after a signal")
    finally:
        if scrapes:
            scrapes.close()
        await helper.close()
        await api.close()


if __name__ == "__main__":
    sys.exit(main())
