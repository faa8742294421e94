"""The second scheduler of the embedded control plane, as a real kube-scheduler process.

Pods run no code here. This process lives as long as the control plane, looks for the configuration that the
stack has put into the cluster, and runs kube-scheduler with it, with the permissions of the scheduler's own
account and no others. Standard library and yaml alone: it always runs and is mostly idle.

``python -m lab.sidecars.second_scheduler --kubeconfig PATH --pki DIR --home DIR --logs DIR``
"""

from __future__ import annotations

import sys
import threading
from functools import partial
from pathlib import Path

import yaml

from lab.sidecars.shared.child import Child, Messages, argument_parser, run_until_stopped, stop_event
from lab.sidecars.shared.files import write_private
from lab.sidecars.shared.server import Server

INTERVAL_S = 0.5  # seconds between two reads of the cluster
NAME = "gpuform-packer"
"""Namespace, account and label of the scheduler, as in the plan."""
CONFIG = "config.yaml"
_MAPS = f"/api/v1/namespaces/{NAME}/configmaps?labelSelector=app.kubernetes.io%2Fname%3D{NAME}"


class SchedulerKeeper:
    """One scheduler, which does not outlive this process."""

    def __init__(self, server: Server, home: Path, logs: Path) -> None:
        """``home`` is the folder of the program, its configuration and its kubeconfig."""
        self._server, self._home = server, home
        self._say = Messages(home)
        self._child = Child(NAME, logs / f"{NAME}.log", self._say)

    def run(self, stop: threading.Event) -> None:
        run_until_stopped(stop, INTERVAL_S, self._step, self._say, self._child.end)

    def _step(self) -> None:
        wanted = self._configuration()
        self._child.keep(wanted, partial(self._command, wanted or ""))

    def _configuration(self) -> str | None:
        """The newest configuration or None; an update creates the new one before it deletes the old one."""
        maps = self._server.items(_MAPS)
        newest = max(maps, key=lambda item: int(item["metadata"]["resourceVersion"]), default=None)
        return str(newest["data"][CONFIG]) if newest else None

    def _command(self, text: str) -> list[str]:
        config, kubeconfig = yaml.safe_load(text), self._home / "kubeconfig"
        config["clientConnection"] = {**config.get("clientConnection", {}), "kubeconfig": str(kubeconfig)}
        write_private(kubeconfig, self._server.kubeconfig(NAME, NAME))
        write_private(self._home / CONFIG, yaml.safe_dump(config))
        # Only one runs: without election it need not wait for its own old lease. No client uses its port.
        command = [str(self._home / NAME), f"--config={self._home / CONFIG}"]
        return [*command, "--leader-elect=false", "--secure-port=0"]


def main() -> int:
    args = argument_parser("lab.sidecars.second_scheduler", __doc__).parse_args()
    SchedulerKeeper(Server(args.kubeconfig, args.pki), args.home, args.logs).run(stop_event())
    return 0


if __name__ == "__main__":
    sys.exit(main())
