"""Events of our programs in the cluster, as the API server takes them.

It lies beside the health loop and the pool keeper, in the ConfigMap of each. Standard library alone, Python
3.11 or newer.
"""

from __future__ import annotations

import time
from typing import Any

LONGEST = 1000  # characters of a message
LONGEST_NAME = 253
NODES = "default"  # the namespace of events about what has none

Json = dict[str, Any]


def event(
    program: str, kind: str, reason: str, about: Json, message: str, at: str, namespace: str = NODES
) -> Json:
    """Of type ``kind`` (Normal, Warning) about an object; ``namespace`` is the event's own."""
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
    """What an event says of whom it is about."""
    meta = node["metadata"]
    return {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
