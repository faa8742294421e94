"""Keeping one kube-scheduler as the cluster wants it: none, this configuration, another one, again."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import yaml

from gpuform.kept.child import Child, Said
from gpuform.kept.files import write_private
from gpuform.kept.server import TROUBLE
from gpuform.packer.api import NAME, Api

EVERY_S = 0.5  # between two looks


class Keeper:
    """One scheduler, which does not outlive this process."""

    def __init__(self, api: Api, program: Path, log: Path) -> None:
        """Looks at nothing yet; ``program`` lies in a folder of its own, where its files go."""
        self._api, self._program = api, program
        self._say = Said()
        self._child = Child(NAME, log, self._say)

    def run(self, over: threading.Event) -> None:
        """Look at the cluster until told to stop, and leave nothing running."""
        try:
            while not over.is_set():
                try:
                    wanted = self._api.configuration()
                    self._child.keep(wanted, partial(self._command, wanted or ""))
                except (*TROUBLE, yaml.YAMLError) as error:
                    # The server is away or says no: what runs goes on.
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
        # There is one only, so that it need not wait for its own old lease; and nobody asks it on a port.
        command = [str(self._program), f"--config={folder / 'config.yaml'}"]
        return [*command, "--leader-elect=false", "--secure-port=0"]
