"""Asking the API server itself how it is, without kubectl."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path


class Probe:
    """Three questions to one API server, with the administrator's certificate."""

    def __init__(self, port: int, pki: Path, timeout: float = 1.0) -> None:
        """``timeout`` in seconds holds for each question. Reads the certificates now."""
        self._port = port
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def ready(self) -> bool:
        """``/readyz``: false too while nothing listens."""
        return self._get("/readyz") is not None

    def usable(self) -> bool:
        """Ready, and the default service account is there, without which the first pod would be refused.

        It is the controller manager that makes it, so this says that the controller manager works.
        """
        return self.ready() and self._get("/api/v1/namespaces/default/serviceaccounts/default") is not None

    def version(self) -> str | None:
        """The server's own version, such as ``v1.34.4``; None when it does not answer."""
        answer = self._get("/version")
        return str(json.loads(answer)["gitVersion"]) if answer else None

    def _get(self, path: str) -> bytes | None:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=self._timeout, context=self._tls
        )
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            return body if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
