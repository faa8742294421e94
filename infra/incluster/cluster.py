"""Client of the API server for our programs in the cluster.

Part of the ConfigMaps of the health loop and the pool keeper; their accounts may not do all of this. Standard
library only, Python 3.11 or newer.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

PAGE = 100  # objects in one answer; bounds the pod's memory in a large cluster
TIMEOUT_S = 10.0
CONFLICT, NOT_FOUND = 409, 404

Json = dict[str, Any]
TROUBLE = (OSError, http.client.HTTPException, ValueError, KeyError, TypeError)
"""Exceptions raised if the server refuses, is unreachable, or sends an unreadable answer."""


class Cluster:
    """One API server; methods raise one of ``TROUBLE``. ``namespace`` is the account's own."""

    def __init__(self, account: Path, server: str = "") -> None:
        """``account`` is the folder with token, CA and namespace; ``server`` defaults to the pod's own."""
        self._server = server or self._of_pod()
        self._account = account
        self.namespace = (account / "namespace").read_text().strip()
        self._tls = ssl.create_default_context(cafile=str(account / "ca.crt"))

    @staticmethod
    def _of_pod() -> str:
        host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
        return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"

    def nodes(self, label: str) -> Iterator[Json]:
        return self._pages("/api/v1/nodes", {"labelSelector": label})

    def watch(self, selector: str, seconds: float) -> Iterator[Json]:
        """Nodes that a selector matches, then each one that is added or modified, for ``seconds``.

        The server may end it earlier. The next call lists all nodes again first, so that no change is lost.
        """
        query = {"labelSelector": selector}
        version = yield from self._pages("/api/v1/nodes", query)
        query |= {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(max(1, int(seconds)))}
        with self._open("GET", "/api/v1/nodes", query, timeout=seconds + TIMEOUT_S) as answer:
            for line in answer:
                said: Json = json.loads(line)
                if said["type"] == "ERROR":  # mostly an expired version: the next call lists anew
                    return
                if said["type"] in ("ADDED", "MODIFIED"):
                    yield said["object"]

    def claim(self, node: Json) -> Json | None:
        """The NodeClaim of this machine: a node's name is used again, its provider id is not."""
        own = node["spec"].get("providerID")
        claims = self._pages("/apis/karpenter.sh/v1/nodeclaims", {}) if own else ()
        return next((one for one in claims if one.get("status", {}).get("providerID") == own), None)

    def give_back(self, claim: Json) -> None:
        """Delete a NodeClaim, if its uid still matches; Karpenter drains and terminates its node."""
        own = {"preconditions": {"uid": claim["metadata"]["uid"]}}
        name = claim["metadata"]["name"]
        self._call("DELETE", f"/apis/karpenter.sh/v1/nodeclaims/{name}", {}, own)

    def pods(self, node: str) -> list[Json]:
        return list(self._pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}))

    def change(
        self,
        node: Json,
        annotations: dict[str, str | None],
        taints: list[Json],
        labels: dict[str, str] | None = None,
    ) -> None:
        """Patch annotations and labels, and set all taints; refused if the node changed since it was read."""
        metadata = {"annotations": annotations, "resourceVersion": node["metadata"]["resourceVersion"]}
        patch = {
            "metadata": metadata | ({"labels": labels} if labels else {}),
            "spec": {"taints": taints or None},
        }
        self._call("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {}, patch)

    def own_labels(self, node: Json, labels: dict[str, str], manager: str) -> None:
        """Set all labels that ``manager`` owns on this node, by server-side apply; those of others stay.

        Refused with ``CONFLICT`` if another manager has set another value, or the node's uid has changed.
        """
        own = {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"], "labels": labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": own}
        self._call("PATCH", f"/api/v1/nodes/{own['name']}", {"fieldManager": manager}, body, "apply-patch")

    def condition(self, node: str, condition: Json) -> Json:
        """Set one condition of a node, by its type; the others stay. Returns the changed node."""
        patch = {"status": {"conditions": [condition]}}
        kind = "strategic-merge-patch"
        return self._call("PATCH", f"/api/v1/nodes/{node}/status", {}, patch, kind)

    def config_map(self, name: str) -> Json | None:
        try:
            return self._call("GET", f"{self._maps}/{name}")
        except urllib.error.HTTPError as error:
            if error.code != NOT_FOUND:
                raise
            return None

    def write(self, config_map: Json) -> Json:
        """Create a ConfigMap, or replace it if it has not changed since it was read; returns the result."""
        metadata = config_map["metadata"]
        if "resourceVersion" in metadata:
            return self._call("PUT", f"{self._maps}/{metadata['name']}", {}, config_map)
        return self._call("POST", self._maps, {}, config_map)

    def event(self, event: Json) -> None:
        self._call("POST", f"/api/v1/namespaces/{event['metadata']['namespace']}/events", {}, event)

    @property
    def _maps(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/configmaps"

    def _pages(self, path: str, query: dict[str, str]) -> Generator[Json, None, str]:
        """Every object of a list; returns the list's resourceVersion."""
        query = {**query, "limit": str(PAGE)}
        while True:
            page = self._call("GET", path, query)
            yield from page["items"]
            token = page["metadata"].get("continue")
            if not token:
                return str(page["metadata"].get("resourceVersion", ""))
            query = {**query, "continue": token}

    def _call(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        kind: str = "merge-patch",
    ) -> Json:
        with self._open(method, path, query, body, kind) as answer:
            found: Json = json.load(answer)
        return found

    def _open(
        self,
        method: str,
        path: str,
        query: dict[str, str] | None = None,
        body: Json | None = None,
        kind: str = "merge-patch",
        timeout: float = TIMEOUT_S,
    ) -> Any:
        url = f"{self._server}{path}?{urllib.parse.urlencode(query or {})}"
        request = urllib.request.Request(url, method=method)  # noqa: S310 (always https)
        request.add_header("Accept", "application/json")
        request.add_header("Authorization", f"Bearer {(self._account / 'token').read_text().strip()}")
        if body is not None:
            request.data = json.dumps(body).encode()
            form = "yaml" if kind == "apply-patch" else "json"  # apply takes JSON only if it is called YAML
            request.add_header(
                "Content-Type", f"application/{f'{kind}+{form}' if method == 'PATCH' else 'json'}"
            )
        return urllib.request.urlopen(request, timeout=timeout, context=self._tls)  # noqa: S310
