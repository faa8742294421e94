"""A cluster on this machine, over one pool of connections."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx

from gpuform.checkout.errors import Failure
from lab.simulator.api import connection

Json = dict[str, Any]
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/events"
NODE_POOLS = "/apis/karpenter.sh/v1/nodepools"
NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
_TIMEOUT_S = 120


class Cluster:
    """A running control plane; must be closed. Several threads may use it at once.

    ``apply`` needs ``kubectl``. Raises KeyError or OSError if the kubeconfig is not usable.
    """

    subject, remedy = "the rehearsal's control plane", "run the rehearsal again"
    """Subject and remedy of its failures."""

    def __init__(self, kubeconfig: Path, kubectl: Path | None = None) -> None:
        self._http = httpx.Client(**connection(kubeconfig), timeout=30, trust_env=False)
        self._kubectl = [str(kubectl), "--kubeconfig", str(kubeconfig)]

    def close(self) -> None:
        self._http.close()

    def items(self, path: str, name: str = "") -> list[Json]:
        """The objects of a list, or those of that name; empty if the server does not know the kind.

        Raises Failure.
        """
        query = {"fieldSelector": f"metadata.name={name}"} if name else {}
        response = self._request("GET", path, params=query)
        if response.status_code == httpx.codes.NOT_FOUND:
            return []
        objects: list[Json] = self._checked(response, path)["items"]
        return objects

    def serves(self, path: str) -> bool:
        """Whether the server knows the kind of a list. Raises Failure."""
        return self._request("GET", path, params={"limit": "1"}).status_code != httpx.codes.NOT_FOUND

    def get(self, path: str) -> Json:
        """One object. Raises Failure."""
        return self._checked(self._request("GET", path), path)

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        """Merge ``body`` into an object. Raises Failure."""
        content = json.dumps(body)
        headers = {"Content-Type": "application/merge-patch+json"}
        self._checked(self._request("PATCH", path, content=content, headers=headers), path)

    def create(self, path: str, body: Mapping[str, Any]) -> Json:
        """Create an object; returns it. Raises Failure."""
        return self._checked(self._request("POST", path, json=dict(body)), path)

    def delete(self, path: str) -> None:
        """Delete an object if it exists. Raises Failure."""
        response = self._request("DELETE", path)
        if response.status_code != httpx.codes.NOT_FOUND:
            self._checked(response, path)

    def apply(self, manifests: Iterable[Mapping[str, Any]], server_side: bool = True) -> None:
        """Raises Failure with the server's message."""
        items = list(manifests)
        if not items:
            return
        document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
        command = [*self._kubectl, "apply", f"--server-side={str(server_side).lower()}", "-f", "-"]
        try:
            done = subprocess.run(command, input=document, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise self._unusable(f"no answer in {_TIMEOUT_S} s") from None
        if done.returncode:
            raise self._unusable(done.stderr.strip())

    def _request(self, method: str, path: str, **options: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise self._unusable(str(error) or type(error).__name__) from None

    def _checked(self, response: httpx.Response, path: str) -> Json:
        if response.is_error:
            raise self._unusable(f"{path}: {response.text.strip()[:300]}")
        body: Json = response.json()
        return body

    def _unusable(self, reason: str) -> Failure:
        return Failure(self.subject, reason, self.remedy)
