"""Hands labels over from one field manager to another, without removing them meanwhile.

A pool's labels belong to a manager named by the resource's URN, unless a program in the cluster sets them,
too. Server-side apply refuses to change a value of another manager, and removes what its last manager gives
up. So the new manager applies the existing values first; then the old one applies nothing.
"""

from __future__ import annotations

from typing import Any

from gpuform.provider.nodes.cluster import Cluster, Manifest, labels


def owned(node: Manifest, manager: str) -> dict[str, str]:
    """The labels that ``manager`` has applied, with their present values."""
    live, found = labels(node), dict[str, str]()
    for entry in node["metadata"].get("managedFields") or ():
        if entry.get("manager") == manager and entry.get("operation") == "Apply":
            fields = ((entry.get("fieldsV1") or {}).get("f:metadata") or {}).get("f:labels") or {}
            keys = (key.removeprefix("f:") for key in fields)
            found |= {key: live[key] for key in keys if key in live}
    return found


async def hand_over(cluster: Cluster, node: Manifest, before: str, after: str) -> None:
    """Hand the labels of ``before`` over to ``after``; nothing if they are the same, or there are none."""
    given = owned(node, before)
    if before == after or not given:
        return
    name, uid = node["metadata"]["name"], node["metadata"]["uid"]
    for manager, kept in ((after, {**owned(node, after), **given}), (before, {})):
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node"}
        body["metadata"] = {"name": name, "uid": uid, "labels": kept}
        await cluster.client.apply(f"/api/v1/nodes/{name}", body, manager=manager)
