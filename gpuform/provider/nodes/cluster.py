"""Nodes, and the pods and events on them, through the Kubernetes API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Client
from gpuform.kubernetes.kubeconfig import resolve
from gpuform.provider.handler import Properties
from gpuform.provider.properties import reveal

Manifest = dict[str, Any]
MERGE = "application/merge-patch+json"
MANAGER = "gpuform-nodes"  # field manager of everything but a pool's labels


class EvictionRefused(Exception):
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
        nodes: list[Manifest] = answer["items"]
        return sorted(nodes, key=lambda node: str(node["metadata"]["name"]))

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
        pods: list[Manifest] = answer["items"]
        return sorted(pods, key=pod_name)

    async def claim(self, namespace: str, name: str) -> Manifest | None:
        """One ResourceClaim; None if it, or the API, does not exist."""
        return await self.client.find(
            f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}"
        )

    async def evict(self, pod: Manifest) -> None:
        """Evict exactly this pod, if it exists. Raises `EvictionRefused` for a disruption budget."""
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
            await self.client.request("POST", path, body=body, retry=False)
        except ApiError as error:
            if error.code == 429:
                causes = "; ".join(str(item.get("message")) for item in error.causes if item.get("message"))
                raise EvictionRefused(causes or error.message) from error
            if error.code not in (404, 409):  # gone, or replaced by a pod of the same name
                raise

    async def warnings(self, node: str) -> list[str]:
        """``reason: message`` of the Warning events on a node, newest first."""
        query = f"involvedObject.kind=Node,involvedObject.name={node},type=Warning"
        answer = await self.client.get("/api/v1/events", {"fieldSelector": query})
        events: Sequence[Manifest] = answer["items"]
        newest = sorted(events, key=_event_time, reverse=True)
        return [
            f"{event.get('reason', 'Warning')}: {' '.join(str(event.get('message')).split())}"
            for event in newest
        ]


def pod_name(pod: Manifest) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def labels(node: Manifest) -> Mapping[str, str]:
    result: Mapping[str, str] = node["metadata"].get("labels") or {}
    return result


def _event_time(event: Manifest) -> str:
    return str(
        event.get("eventTime") or event.get("lastTimestamp") or event["metadata"].get("creationTimestamp")
    )


class Clusters:
    """Clients by kubeconfig and context: each resource names its own cluster, the provider has none."""

    def __init__(self) -> None:
        self._clients: dict[tuple[str, str], Client] = {}

    def get(self, inputs: Properties) -> Cluster:
        """The cluster of a resource's inputs; an unreachable cluster fails at the first request."""
        config = {key: str(reveal(inputs.get(key)) or "") for key in ("kubeconfig", "context")}
        key = (config["kubeconfig"], config["context"])
        if key not in self._clients:
            self._clients[key] = Client(resolve(config))
        return Cluster(self._clients[key])

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


def managed_labels(node: Manifest, manager: str | None = None) -> dict[str, str]:
    """The labels that ``manager``, or anyone, has applied, with their present values."""
    live, managed = labels(node), dict[str, str]()
    for entry in node["metadata"].get("managedFields") or ():
        if manager in (None, entry.get("manager")) and entry.get("operation") == "Apply":
            fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
            keys = (key.removeprefix("f:") for key in fields)
            managed |= {key: live[key] for key in keys if key in live}
    return managed


async def hand_over_labels(cluster: Cluster, node: Manifest, old: str, new: str) -> None:
    """Hand the labels of ``old`` over to ``new``; nothing if they are the same, or there are none.

    A pool's labels belong to a manager named by the resource's URN, unless a program in the cluster sets
    them, too. Server-side apply refuses to change a value of another manager, and removes what its last
    manager gives up. So the new manager applies the existing values first; then the old one applies nothing.
    """
    handed = managed_labels(node, old)
    if old == new or not handed:
        return
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    for manager, applied in ((new, {**managed_labels(node, new), **handed}), (old, {})):
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node"}
        body["metadata"] = {"name": name, "uid": uid, "labels": applied}
        await cluster.client.apply(f"/api/v1/nodes/{name}", body, manager=manager)
