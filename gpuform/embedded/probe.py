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
        return self._ask("GET", "/readyz") is not None

    def usable(self) -> bool:
        """Ready, and the default service account is there, without which the first pod would be refused.

        The controller manager makes it, but looks for the server once a second only; so it is made here
        when it is missing, which is the same object.
        """
        if not self.ready():
            return False
        account = "/api/v1/namespaces/default/serviceaccounts"
        if self._ask("GET", f"{account}/default") is not None:
            return True
        self._ask("POST", account, '{"metadata": {"name": "default"}}')
        return self._ask("GET", f"{account}/default") is not None

    def version(self) -> str | None:
        """The server's own version, such as ``v1.34.4``; None when it does not answer."""
        answer = self._ask("GET", "/version")
        return str(json.loads(answer)["gitVersion"]) if answer else None

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes | None:
        """The answer's body; None for an error of any kind, which for a starting server is no news."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=self._timeout, context=self._tls
        )
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"} if body else {})
            answer = connection.getresponse()
            content = answer.read()
            return content if answer.status < http.client.BAD_REQUEST else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
