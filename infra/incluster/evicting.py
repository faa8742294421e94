"""Pods that have to leave a node before its machine goes, and how they are asked to.

As `gpuform up` does before it cuts GPUs anew: by the Eviction API, so that disruption budgets hold. It lies
beside the health loop, in the same ConfigMap. Standard library alone, Python 3.11 or newer.
"""

from __future__ import annotations

import sys
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # isolated, the interpreter does not look there by itself
if TYPE_CHECKING:
    from infra.incluster import cluster
    from infra.incluster.cluster import Cluster
else:
    import cluster

MIRROR = "kubernetes.io/config.mirror"
OVER = ("Succeeded", "Failed")

Json = dict[str, Any]


def in_the_way(pods: list[Json]) -> list[Json]:
    """Pods that live on without the node: not those of a DaemonSet, of the kubelet's own, or that ended."""
    return [pod for pod in pods if not (_stays(pod) or pod.get("status", {}).get("phase") in OVER)]


def comes_back(pod: Json) -> bool:
    """Whether a controller makes it anew, or it is leaving by itself."""
    return _controller(pod) is not None or "deletionTimestamp" in pod["metadata"]


def evict(server: Cluster, pod: Json) -> None:
    """Ask for it; one that its budget holds is asked again at the next look, one that is gone is fine."""
    if "deletionTimestamp" in pod["metadata"]:
        return
    try:
        server.evict(pod)
    except urllib.error.HTTPError as error:
        if error.code not in (cluster.TOO_MANY, cluster.CONFLICT, cluster.NOT_FOUND):
            raise


def name_of(pod: Json) -> str:
    """``namespace/name``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _stays(pod: Json) -> bool:
    owner = _controller(pod)
    mirrored = MIRROR in (pod["metadata"].get("annotations") or {})
    return mirrored or (owner is not None and owner["kind"] == "DaemonSet")


def _controller(pod: Json) -> Json | None:
    owners: list[Json] = pod["metadata"].get("ownerReferences") or []
    return next((one for one in owners if one.get("controller")), None)
