"""Requests to the API server with the administrator's certificate, and kubeconfigs of other accounts."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

JSON = "application/json"
STRATEGIC = "application/strategic-merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
"""Media type of a list of names, versions and labels without the full objects."""
YEAR_S = 365 * 24 * 3600
SERVER_ERRORS = (OSError, http.client.HTTPException, ValueError, KeyError)
"""Exceptions raised here if the server does not answer, or answers with an error."""

Json = dict[str, Any]


class NotFound(ValueError):
    """The server does not know that object, or that kind."""


class Server:
    """One API server; the next request reopens a lost connection."""

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        """Reads the files now; the first request connects."""
        cluster = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]
        self._cluster: Json = {key: cluster[key] for key in ("server", "certificate-authority-data")}
        tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
        url = urlsplit(self._cluster["server"])
        self._connection = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=10, context=tls)

    def ask(self, path: str, body: Mapping[str, Any] | None = None, accept: str = JSON) -> Json:
        """The answer to a GET, or to a POST if ``body`` is given. Raises ``SERVER_ERRORS``."""
        if body is None:
            return self._request("GET", path, None, {"Accept": accept})
        return self._request("POST", path, json.dumps(body), {"Content-Type": JSON})

    def apply(self, path: str, manifest: str) -> None:
        """Server-side apply of a YAML manifest, which takes over conflicting fields; errors as ``ask``."""
        url = f"{path}?fieldManager=gpuform&force=true"
        self._request("PATCH", url, manifest, {"Content-Type": "application/apply-patch+yaml"})

    def patch(self, path: str, body: Mapping[str, Any], kind: str = "application/merge-patch+json") -> None:
        """Merge ``body`` into an object; errors as ``ask``."""
        self._request("PATCH", path, json.dumps(body), {"Content-Type": kind})

    def _request(self, method: str, path: str, body: str | None, headers: Mapping[str, str]) -> Json:
        try:
            self._connection.request(method, path, body and body.encode(), dict(headers))
            answer = self._connection.getresponse()
            content = answer.read()
        except BaseException:
            self._connection.close()
            raise
        if answer.status >= http.client.BAD_REQUEST:
            kind = NotFound if answer.status == http.client.NOT_FOUND else ValueError
            raise kind(f"{method} {path}: {answer.status} {_message(content)}")
        document: Json = json.loads(content)
        return document

    def items(self, path: str, accept: str = JSON) -> list[Json]:
        """The objects of a list; errors as ``ask``."""
        items: list[Json] = self.ask(path, accept=accept)["items"] or []  # an empty list may be null
        return items

    def kubeconfig(self, namespace: str, account: str) -> str:
        """A kubeconfig with the account's own token, valid for a year.

        What its roles do not allow fails here as it would elsewhere.
        """
        body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        body["spec"] = {"expirationSeconds": YEAR_S}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": account, "cluster": self._cluster}],
            "users": [{"name": account, "user": {"token": str(self.ask(path, body)["status"]["token"])}}],
            "contexts": [{"name": account, "context": {"cluster": account, "user": account}}],
            "current-context": account,
        }
        return yaml.safe_dump(document)


def _message(content: bytes) -> str:
    text = content.decode(errors="replace")
    try:
        return str(json.loads(text)["message"])[:300]
    except (ValueError, KeyError, TypeError):
        return " ".join(text.split())[:300]
