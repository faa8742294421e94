"""``python -m gpuform.simulator --kubeconfig PATH --nvidia-config PATH``: run until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from gpuform.simulator.api import Api
from gpuform.simulator.nvidia_config import NvidiaConfig
from gpuform.simulator.reconciler import Reconciler


def main() -> int:
    """Parse the arguments and run; 0 when told to stop, 2 when the arguments are of no use."""
    parser = argparse.ArgumentParser(prog="gpuform.simulator", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument(
        "--nvidia-config", type=Path, required=True, help="the helper built from toolchain/nvidia-config"
    )
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    args = parser.parse_args()
    for file in (args.kubeconfig, args.nvidia_config):
        if not file.is_file():
            print(f"{file}: no such file; `gpuform local start` creates it", file=sys.stderr)
            return 2
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr
    )
    logging.getLogger("simulator").setLevel(args.log_level.upper())
    asyncio.run(_run(args.kubeconfig, args.nvidia_config))
    return 0


async def _run(kubeconfig: Path, binary: Path) -> None:
    api, helper = Api(kubeconfig), NvidiaConfig(binary)
    task = asyncio.ensure_future(Reconciler(api, helper).run())
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, task.cancel)
    try:
        await task
    except asyncio.CancelledError:
        logging.getLogger("simulator").info("told to stop")
    finally:
        await helper.close()
        await api.close()


if __name__ == "__main__":
    sys.exit(main())
