"""The API server, as far as the accounts of our programs in the cluster may use it.

It lies beside the health loop and the pool keeper, in the ConfigMap of each; what it can do here, not every
account may. Standard library alone, Python 3.11 or newer.
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

PAGE = 100  # objects in one answer, so that a large cluster needs no large pod
TIMEOUT_S = 10.0
CONFLICT, NOT_FOUND = 409, 404

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

    def watch(self, selector: str, seconds: float) -> Iterator[Json]:
        """Nodes that a selector matches, then each of them that comes or changes, until the time is over.

        The server ends it earlier if it likes. Whoever goes on has all nodes again first, so that nothing is
        missed for good.
        """
        query = {"labelSelector": selector}
        version = yield from self._pages("/api/v1/nodes", query)
        query |= {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(max(1, int(seconds)))}
        with self._open("GET", "/api/v1/nodes", query, timeout=seconds + TIMEOUT_S) as answer:
            for line in answer:
                said: Json = json.loads(line)
                if said["type"] == "ERROR":  # what was seen is too old, mostly: the next list is not
                    return
                if said["type"] in ("ADDED", "MODIFIED"):
                    yield said["object"]

    def claim(self, node: str) -> Json | None:
        """The NodeClaim that the node came from."""
        claims = self._pages("/apis/karpenter.sh/v1/nodeclaims", {})
        return next((one for one in claims if one.get("status", {}).get("nodeName") == node), None)

    def give_back(self, claim: Json) -> None:
        """Delete a NodeClaim, if it is still the one that was seen; Karpenter drains its node and ends it."""
        own = {"preconditions": {"uid": claim["metadata"]["uid"]}}
        name = claim["metadata"]["name"]
        self._call("DELETE", f"/apis/karpenter.sh/v1/nodeclaims/{name}", {}, own)

    def pods(self, node: str) -> list[Json]:
        """Pods on a node, of every namespace."""
        return list(self._pages("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"}))

    def change(
        self,
        node: Json,
        annotations: dict[str, str | None],
        taints: list[Json],
        labels: dict[str, str] | None = None,
    ) -> None:
        """Annotations, labels and all taints of a node, unless it has changed since it was seen."""
        metadata = {"annotations": annotations, "resourceVersion": node["metadata"]["resourceVersion"]}
        patch = {
            "metadata": metadata | ({"labels": labels} if labels else {}),
            "spec": {"taints": taints or None},
        }
        self._call("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {}, patch)

    def own_labels(self, node: Json, labels: dict[str, str], manager: str) -> None:
        """All labels that ``manager`` has on this very node, by server-side apply; those of others stay.

        Refused with ``CONFLICT`` where somebody else has set another value, or it is another node by now.
        """
        own = {"name": node["metadata"]["name"], "uid": node["metadata"]["uid"], "labels": labels}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": own}
        self._call("PATCH", f"/api/v1/nodes/{own['name']}", {"fieldManager": manager}, body, "apply-patch")

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

    def _pages(self, path: str, query: dict[str, str]) -> Generator[Json, None, str]:
        """Every object, and at the end the version of the list."""
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
            form = "yaml" if kind == "apply-patch" else "json"  # JSON is YAML, and is not taken by that name
            request.add_header(
                "Content-Type", f"application/{f'{kind}+{form}' if method == 'PATCH' else 'json'}"
            )
        return urllib.request.urlopen(request, timeout=timeout, context=self._tls)  # noqa: S310
