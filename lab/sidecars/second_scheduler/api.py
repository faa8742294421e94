"""Two requests to the API server: the scheduler's configuration, and a token of its account."""

from __future__ import annotations

from pathlib import Path

from lab.sidecars.shared.server import Server

NAME = "gpuform-packer"
"""Namespace, account and label of the scheduler; infra.model.scheduling has the same name for the plan."""
CONFIG = "config.yaml"
_MAPS = f"/api/v1/namespaces/{NAME}/configmaps?labelSelector=app.kubernetes.io%2Fname%3D{NAME}"


class Api:
    """One API server, read as administrator."""

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        self._server = Server(kubeconfig, pki)

    def configuration(self) -> str | None:
        """The newest configuration or None; an update creates the new one before it deletes the old one."""
        maps = self._server.items(_MAPS)
        if not maps:
            return None
        newest = max(maps, key=lambda one: int(one["metadata"]["resourceVersion"]))
        return str(newest["data"][CONFIG])

    def kubeconfig(self) -> str:
        return self._server.kubeconfig(NAME, NAME)
