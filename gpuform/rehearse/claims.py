"""GPUs that are had by claim: what NVIDIA's DRA driver would tell the cluster of each node, played.

Its chart is a stand-in here, so nothing on the nodes offers devices. Each GPU is one device with no attribute
but its type: a claim that asks for more than a number of them is not met.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuform.rehearse.cluster import Cluster
from gpuform.rehearse.seen import Node
from gpuform.rehearse.watch import Now
from infra.model import labels
from infra.model.environment import Environment

PLAYED = "NVIDIA's DRA driver: the GPUs of each node that are had by claim"


class Driver:
    """Tells of each node once, as soon as it is ready; what it told goes with the node."""

    def __init__(self, cluster: Cluster, env: Environment) -> None:
        """Nothing is told yet."""
        self._cluster, self._pools = cluster, {pool.name for pool in env.pools if pool.by_claim}
        self._told: set[str] = set()

    def __call__(self, now: Now) -> None:
        """Tell of the nodes that are new. Raises Failure where the control plane does not answer."""
        new = [node for node in now.nodes if self._is_new(node)]
        self._cluster.apply(resource_slice(node) for node in new)
        self._told |= {node.uid for node in new}

    def _is_new(self, node: Node) -> bool:
        return node.pool in self._pools and node.ready and node.uid not in self._told


def resource_slice(node: Node) -> dict[str, Any]:
    """The ResourceSlice of a node: its GPUs, to be claimed one by one."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.name, "uid": node.uid}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node.name}-{labels.GPU_DEVICE_CLASS}", "ownerReferences": [owner]},
        "spec": {
            "driver": labels.GPU_DEVICE_CLASS,
            "nodeName": node.name,
            "pool": {"name": node.name, "generation": 1, "resourceSliceCount": 1},
            "devices": list(_devices(node)),
        },
    }


def _devices(node: Node) -> Iterator[dict[str, Any]]:
    for index in range(node.gpus):
        yield {"name": f"gpu-{index}", "attributes": {"type": {"string": "gpu"}}}
