"""Nodes, and the pods and events on them, through the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Client

Manifest = dict[str, Any]
MERGE = "application/merge-patch+json"
MANAGER = "gpuform-nodes"  # field manager of everything but a pool's labels


class Refused(Exception):
    """The eviction was refused for now; ``str()`` is the server's reason, with the budget's name."""


@dataclass(frozen=True)
class Cluster:
    """One cluster. Raises `Unreachable` and `ApiError` as the client does."""

    client: Client

    async def nodes(self, selector: str) -> list[Manifest]:
        try:
            answer = await self.client.get("/api/v1/nodes", {"labelSelector": selector})
        except ApiError as error:
            if error.code != 400:
                raise
            raise OperationError(
                f"selector {selector!r}: {error.message}; write it as key=value,key2=value2"
            ) from error
        found: list[Manifest] = answer["items"]
        return sorted(found, key=lambda item: str(item["metadata"]["name"]))

    async def node(self, name: str) -> Manifest | None:
        return await self.client.find(f"/api/v1/nodes/{name}")

    async def patch(self, name: str, body: Mapping[str, Any]) -> Manifest:
        """JSON merge patch; with a resourceVersion in it, `ApiError` 409 if the node has changed since."""
        answer = await self.client.request(
            "PATCH", f"/api/v1/nodes/{name}", params={"fieldManager": MANAGER}, body=body, content_type=MERGE
        )
        changed: Manifest = answer.json()
        return changed

    async def pods(self, node: str) -> list[Manifest]:
        """The pods bound to a node that have not ended, sorted by namespace and name."""
        query = f"spec.nodeName={node},status.phase!=Succeeded,status.phase!=Failed"
        answer = await self.client.get("/api/v1/pods", {"fieldSelector": query})
        found: list[Manifest] = answer["items"]
        return sorted(found, key=pod_name)

    async def claim(self, namespace: str, name: str) -> Manifest | None:
        """One ResourceClaim; None if it, or the API, does not exist."""
        return await self.client.find(
            f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        )

    async def evict(self, pod: Manifest) -> None:
        """Evict exactly this pod, if it still exists. Raises `Refused` if a disruption budget forbids it."""
        meta = pod["metadata"]
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": meta["name"], "namespace": meta["namespace"]},
            "deleteOptions": {"preconditions": {"uid": meta["uid"]}},
        }
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
        try:
            # Not repeated here: the caller lists the pods again before it retries a refused eviction.
            await self.client.request("POST", path, body=body, repeat=False)
        except ApiError as error:
            if error.code == 429:
                causes = "; ".join(str(item.get("message")) for item in error.causes if item.get("message"))
                raise Refused(causes or error.message) from error
            if error.code not in (404, 409):  # gone, or replaced by a pod of the same name
                raise

    async def warnings(self, node: str) -> list[str]:
        """``reason: message`` of the Warning events on a node, newest first."""
        query = f"involvedObject.kind=Node,involvedObject.name={node},type=Warning"
        answer = await self.client.get("/api/v1/events", {"fieldSelector": query})
        events: Sequence[Manifest] = answer["items"]
        newest = sorted(events, key=_when, reverse=True)
        return [
            f"{item.get('reason', 'Warning')}: {' '.join(str(item.get('message')).split())}"
            for item in newest
        ]


def pod_name(pod: Manifest) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def labels(node: Manifest) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("labels") or {}
    return found


def _when(event: Manifest) -> str:
    return str(
        event.get("eventTime") or event.get("lastTimestamp") or event["metadata"].get("creationTimestamp")
    )
