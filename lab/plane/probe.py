"""Asks the API server for its readiness and version, without kubectl."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Probe:
    """The requests of a start to one API server, with the administrator's certificate."""

    def __init__(self, port: int, pki: Path, timeout: float = 1.0) -> None:
        """``timeout`` is in seconds per request. Reads the certificates now."""
        self._port = port
        self._timeout = timeout
        self._tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        self._tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")

    def ready(self) -> bool:
        """Whether ``/readyz`` succeeds; false too while no server listens."""
        return self._ask("GET", "/readyz") is not None

    def usable(self) -> bool:
        """Ready, and the default service account exists, without which the first pod would be refused.

        The controller manager creates it, but polls the server only once a second. So it is created here if
        it is missing, which gives the same object.
        """
        if not self.ready():
            return False
        account = "/api/v1/namespaces/default/serviceaccounts"
        if self._ask("GET", f"{account}/default") is not None:
            return True
        self._ask("POST", account, '{"metadata": {"name": "default"}}')
        return self._ask("GET", f"{account}/default") is not None

    def drop_leases(self) -> bool:
        """Delete the leases of simulated nodes; false if there are none.

        Each kwok has an identity of its own, and leaves a node alone until the lease of the last one ends
        (kwok, controllers.Identity and tryAcquireOrRenew). Until then no pod starts there.
        """
        held = json.loads(self._ask("GET", _LEASES) or "{}").get("items")
        return bool(held) and self._ask("DELETE", _LEASES) is not None

    def version(self) -> str | None:
        """The server's own version, such as ``v1.34.4``; None when it does not answer."""
        answer = self._ask("GET", "/version")
        return str(json.loads(answer)["gitVersion"]) if answer else None

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes | None:
        """The answer's body; None for any error, since errors are normal while a server starts."""
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
