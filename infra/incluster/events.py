"""Kubernetes events of our programs in the cluster.

Part of the ConfigMaps of the health loop and the pool keeper. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import time
from typing import Any

LONGEST = 1000  # characters of a message
LONGEST_NAME = 253
NODES = "default"  # the namespace of events about cluster-scoped objects

Json = dict[str, Any]


def event(
    program: str, kind: str, reason: str, about: Json, message: str, at: str, namespace: str = NODES
) -> Json:
    """An event of type ``kind`` (Normal, Warning) about an object; ``namespace`` is the event's own."""
    name = about["name"][: LONGEST_NAME - 20]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{time.time_ns():x}", "namespace": namespace},
        "involvedObject": about,
        "type": kind,
        "reason": reason,
        "message": message[:LONGEST],
        "count": 1,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "source": {"component": program},
        "reportingComponent": program,
        "reportingInstance": program,
    }


def about_node(node: Json) -> Json:
    """The reference to a node for ``event``."""
    meta = node["metadata"]
    return {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
