"""Runs the health loop as its pod would: the program of its ConfigMap, its account, the real Prometheus.

Only its listen address and the addresses of Prometheus and the API server are this machine's; Python is this
interpreter, not the image's. Its output, the audit log, is appended to a file.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from lab.sidecars.monitoring.cluster import HEALTH, Cluster
from lab.sidecars.shared.child import Child, Messages, free_port
from lab.sidecars.shared.files import write_private

Json = Mapping[str, Any]
FOLDER = "health"


class HealthLoop:
    """One health loop process while its Deployment exists; restarted if that names another ConfigMap."""

    def __init__(self, cluster: Cluster, home: Path, logs: Path, say: Messages) -> None:
        self._cluster, self._folder = cluster, home / FOLDER
        self._child = Child(HEALTH, logs / f"{HEALTH}.log", say, folder=home)
        self.port = 0
        """Port of its metrics; 0 while it does not run."""

    def keep(self, deployment: Json | None, prometheus: int) -> None:
        """Make the process match the Deployment; ``prometheus``: a port. Raises ``server.SERVER_ERRORS``."""
        if deployment is None:
            self.end()
            return
        spec = deployment["spec"]["template"]["spec"]
        (container,), (volume, *_) = spec["containers"], spec["volumes"]
        files, account = volume["configMap"]["name"], spec["serviceAccountName"]
        mount, *_ = container["volumeMounts"]

        def command() -> list[str]:
            server = self._prepare(files, account)
            mount_path, folder = f"{mount['mountPath']}/", f"{self._folder}/"
            executable, *arguments = (word.replace(mount_path, folder, 1) for word in container["command"])
            if executable != "python3":
                raise ValueError(f"Deployment {HEALTH} runs {executable}, not python3")
            self.port = free_port()
            options = {
                "--account": self._folder / "account",
                "--listen": f"127.0.0.1:{self.port}",
                "--prometheus": f"http://127.0.0.1:{prometheus}",
                "--server": server,
            }
            return [sys.executable, *arguments, *(str(text) for pair in options.items() for text in pair)]

        self._child.keep((files, account, tuple(container["command"]), prometheus), command)

    def end(self) -> None:
        self._child.keep(None, tuple)
        self.port = 0

    def _prepare(self, files: str, account: str) -> str:
        """Write the program and the account's files as a pod finds them; returns the API server's URL."""
        folder = self._folder / "account"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in self._cluster.config_map(HEALTH, files).items():
            write_private(self._folder / name, text)
        config = yaml.safe_load(self._cluster.kubeconfig(HEALTH, account))
        cluster = config["clusters"][0]["cluster"]
        write_private(folder / "namespace", HEALTH)
        write_private(folder / "token", config["users"][0]["user"]["token"])
        write_private(folder / "ca.crt", base64.b64decode(cluster["certificate-authority-data"]).decode())
        return str(cluster["server"])
