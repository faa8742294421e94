"""Two questions to the API server: which configuration there is, and a token of the scheduler's account."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

NAME = "gpuform-packer"
"""The scheduler's namespace, account and label (infra.model.scheduling says the same, for the plan)."""
CONFIG = "config.yaml"
YEAR_S = 365 * 24 * 3600
_MAPS = f"/api/v1/namespaces/{NAME}/configmaps?labelSelector=app.kubernetes.io%2Fname%3D{NAME}"
_TOKEN = f"/api/v1/namespaces/{NAME}/serviceaccounts/{NAME}/token"

TROUBLE = (OSError, http.client.HTTPException, ValueError, KeyError)
"""What a server that does not answer, or not as it should, raises here."""


class Api:
    """One server, with the administrator's certificate; a connection that is lost is made anew."""

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        """Reads the files now, connects later."""
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        self.server: str = cluster["server"]
        self.authority: str = cluster["certificate-authority-data"]
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        url = urlsplit(self.server)
        self._connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=10, context=tls)

    def configuration(self) -> str | None:
        """The newest configuration, None where there is none: an update makes one before the old one goes."""
        maps = self._ask("GET", _MAPS)["items"]
        if not maps:
            return None
        newest = max(maps, key=lambda one: int(one["metadata"]["resourceVersion"]))
        return str(newest["data"][CONFIG])

    def token(self) -> str:
        """A token of the account, good for a year."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": YEAR_S},
        }
        return str(self._ask("POST", _TOKEN, json.dumps(body))["status"]["token"])

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        """The answer; one of ``TROUBLE`` where there is none."""
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            self._connection.request(method, path, body, headers)
            answer = self._connection.getresponse()
            content = answer.read()
        except BaseException:
            self._connection.close()
            raise
        if answer.status >= http.client.BAD_REQUEST:
            raise ValueError(f"{method} {path}: {answer.status} {content[:200].decode(errors='replace')}")
        found: dict[str, Any] = json.loads(content)
        return found
