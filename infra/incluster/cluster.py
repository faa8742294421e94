"""The API server, as far as the health loop's account may use it.

It lies beside the health loop, in the same ConfigMap. Standard library alone, Python 3.11 or newer.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PAGE = 100  # objects in one answer, so that a large cluster needs no large pod
TIMEOUT_S = 10.0
CONFLICT, NOT_FOUND = 409, 404
EVENTS = "default"  # the namespace of events of what has none

Json = dict[str, Any]
TROUBLE = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)
"""What is raised where it refuses, is away, or says what nobody can read."""


class Cluster:
    """One server; raises one of ``TROUBLE``. ``namespace`` is the account's own."""

    def __init__(self, account: Path, server: str = "") -> None:
        """``account`` is the folder with the token, the certificate authority and our namespace; without a
        ``server`` it is the one that a pod is told of.
        """
        self._server = server or self._of_pod()
        self._account = account
        self.namespace = (account / "namespace").read_text().strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))

    @staticmethod
    def _of_pod() -> str:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def nodes(self, label: str) -> Iterator[Json]:
        """Nodes that have a label."""
        return self._pages("/api/v1/nodes", {"labelSelector": label})

    def claim(self, node: str) -> Json | None:
        """The NodeClaim that the node came from."""
        claims = self._pages("/apis/karpenter.sh/v1/nodeclaims", {})
        return next((one for one in claims if one.get("status", {}).get("nodeName") == node), None)

    def give_back(self, claim: Json) -> None:
        """Delete a NodeClaim, if it is still the one that was seen; Karpenter drains its node and ends it."""
        own = {"preconditions": {"uid": claim["metadata"]["uid"]}}
        name = claim["metadata"]["name"]
        self._call("DELETE", f"/apis/karpenter.sh/v1/nodeclaims/{name}", {}, own)

    def change(self, node: Json, annotations: dict[str, str | None], taints: list[Json]) -> None:
        """Annotations and all taints of a node, unless it has changed since it was seen."""
        metadata = {"annotations": annotations, "resourceVersion": node["metadata"]["resourceVersion"]}
        patch = {"metadata": metadata, "spec": {"taints": taints or None}}
        self._call("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {}, patch)

    def condition(self, node: str, condition: Json) -> Json:
        """One condition of a node, by its type; the others stay as they are. The node as it then is."""
        patch = {"status": {"conditions": [condition]}}
        kind = "strategic-merge-patch"
        return self._call("PATCH", f"/api/v1/nodes/{node}/status", {}, patch, kind)

    def config_map(self, name: str) -> Json | None:
        """One of our namespace; None for none."""
        try:
            return self._call("GET", f"{self._maps}/{name}")
        except urllib.error.HTTPError as error:
            if error.code != NOT_FOUND:
                raise
            return None

    def write(self, config_map: Json) -> Json:
        """Make it, or replace the one that was seen unless it has changed; as it then is."""
        metadata = config_map["metadata"]
        if "resourceVersion" in metadata:
            return self._call("PUT", f"{self._maps}/{metadata['name']}", {}, config_map)
        return self._call("POST", self._maps, {}, config_map)

    def event(self, event: Json) -> None:
        """One event, in its own namespace."""
        self._call("POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", {}, event)

    @property
    def _maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def _pages(self, path: str, query: dict[str, str]) -> Iterator[Json]:
        query = {**query, "limit": str(PAGE)}
        while True:
            page = self._call("GET", path, query)
            yield from page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return
            query = {**query, "continue": token}

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        kind: str = "merge-patch",
    ) -> Json:
        url = f"{self._server}{path}?{urllib.parse.urlencode(query or {})}"
        request = urllib.request.Request(url, method=method)  # noqa: S310 (always https)
        request.add_header("Accept", "application/json")
        request.add_header("Authorization", f"Bearer {(self._account / 'token').read_text().strip()}")
        if body is not None:
            request.data = json.dumps(body).encode()
            content = f"{kind}+json" if method == "PATCH" else "json"
            request.add_header("Content-Type", f"application/{content}")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=self._tls) as answer:  # noqa: S310
            found: Json = json.load(answer)
        return found
