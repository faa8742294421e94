"""Runs one kube-scheduler with the configuration in the cluster, and restarts it after a change or exit."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import yaml

from lab.sidecars.second_scheduler.api import NAME, Api
from lab.sidecars.shared.child import Child, Said
from lab.sidecars.shared.files import write_private
from lab.sidecars.shared.server import TROUBLE

EVERY_S = 0.5  # between two looks


class Keeper:
    """One scheduler, which does not outlive this process."""

    def __init__(self, api: Api, program: Path, log: Path) -> None:
        """``program`` is in a folder of its own, where its configuration and kubeconfig are written."""
        self._api, self._program = api, program
        self._say = Said()
        self._child = Child(NAME, log, self._say)

    def run(self, over: threading.Event) -> None:
        try:
            while not over.is_set():
                try:
                    wanted = self._api.configuration()
                    self._child.keep(wanted, partial(self._command, wanted or ""))
                except (*TROUBLE, yaml.YAMLError) as error:
                    # The server is unreachable or refuses: a running scheduler goes on.
                    self._say(f"{type(error).__name__}: {error}")
                over.wait(EVERY_S)
        finally:
            self._child.end()

    def _command(self, text: str) -> list[str]:
        folder = self._program.parent
        config = yaml.safe_load(text)
        kubeconfig = folder / "kubeconfig"
        config["clientConnection"] = {
            **config.get("clientConnection", {}),
            "kubeconfig": str(kubeconfig),
        }
        write_private(kubeconfig, self._api.kubeconfig())
        write_private(folder / "config.yaml", yaml.safe_dump(config))
        # Only one runs: without election it need not wait for its own old lease. No client uses its port.
        command = [str(self._program), f"--config={folder / 'config.yaml'}"]
        return [*command, "--leader-elect=false", "--secure-port=0"]
