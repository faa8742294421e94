"""Two questions to the API server: which configuration there is, and a token of the scheduler's account."""

from __future__ import annotations

from pathlib import Path

from gpuform.kept.server import Server

NAME = "gpuform-packer"
"""The scheduler's namespace, account and label (infra.model.scheduling says the same, for the plan)."""
CONFIG = "config.yaml"
_MAPS = f"/api/v1/namespaces/{NAME}/configmaps?labelSelector=app.kubernetes.io%2Fname%3D{NAME}"


class Api:
    """One server, asked as administrator."""

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        """Reads the files now, connects later."""
        self._server = Server(kubeconfig, pki)

    def configuration(self) -> str | None:
        """The newest configuration, None where there is none: an update makes one before the old one goes."""
        maps = self._server.items(_MAPS)
        if not maps:
            return None
        newest = max(maps, key=lambda one: int(one["metadata"]["resourceVersion"]))
        return str(newest["data"][CONFIG])

    def kubeconfig(self) -> str:
        """One with the token of the scheduler's account."""
        return self._server.kubeconfig(NAME, NAME)
