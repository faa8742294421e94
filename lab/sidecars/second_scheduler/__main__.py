"""The second scheduler of the embedded control plane, as a real kube-scheduler process.

Pods run no code here. This process lives as long as the control plane, looks for the configuration that the
stack has put into the cluster, and runs kube-scheduler with it, with the permissions of the scheduler's own
account and no others. Standard library and yaml alone: it always runs and is mostly idle.

``python -m lab.sidecars.second_scheduler --kubeconfig PATH --pki DIR --scheduler PATH --log PATH``
"""

from __future__ import annotations

import argparse
import sys
import threading
from functools import partial
from pathlib import Path

import yaml

from lab.sidecars.shared.child import Child, Said, told_to_stop
from lab.sidecars.shared.files import write_private
from lab.sidecars.shared.server import TROUBLE, Server

EVERY_S = 0.5  # between two looks
NAME = "gpuform-packer"
"""Namespace, account and label of the scheduler; infra.model.scheduling has the same name for the plan."""
CONFIG = "config.yaml"
_MAPS = f"/api/v1/namespaces/{NAME}/configmaps?labelSelector=app.kubernetes.io%2Fname%3D{NAME}"


class Keeper:
    """One scheduler, which does not outlive this process."""

    def __init__(self, server: Server, program: Path, log: Path) -> None:
        """``program`` is in a folder of its own, where its configuration and kubeconfig are written."""
        self._server, self._program = server, program
        self._say = Said()
        self._child = Child(NAME, log, self._say)

    def run(self, over: threading.Event) -> None:
        try:
            while not over.is_set():
                try:
                    wanted = self._configuration()
                    self._child.keep(wanted, partial(self._command, wanted or ""))
                except (*TROUBLE, yaml.YAMLError) as error:
                    # The server is unreachable or refuses: a running scheduler goes on.
                    self._say(f"{type(error).__name__}: {error}")
                over.wait(EVERY_S)
        finally:
            self._child.end()

    def _configuration(self) -> str | None:
        """The newest configuration or None; an update creates the new one before it deletes the old one."""
        maps = self._server.items(_MAPS)
        newest = max(maps, key=lambda one: int(one["metadata"]["resourceVersion"]), default=None)
        return str(newest["data"][CONFIG]) if newest else None

    def _command(self, text: str) -> list[str]:
        folder = self._program.parent
        config = yaml.safe_load(text)
        kubeconfig = folder / "kubeconfig"
        config["clientConnection"] = {
            **config.get("clientConnection", {}),
            "kubeconfig": str(kubeconfig),
        }
        write_private(kubeconfig, self._server.kubeconfig(NAME, NAME))
        write_private(folder / "config.yaml", yaml.safe_dump(config))
        # Only one runs: without election it need not wait for its own old lease. No client uses its port.
        command = [str(self._program), f"--config={folder / 'config.yaml'}"]
        return [*command, "--leader-elect=false", "--secure-port=0"]


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
