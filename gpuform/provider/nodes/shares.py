"""Checks nodes on which the device plugin is to share GPUs in another way while pods use them.

The plugin restarts with its new configuration, and running pods keep their devices. So a node must not offer
less of a resource than is in use on it, or new pods would be placed beside pods that are no longer counted.
Offering more of a resource is harmless. A node that gets another MIG layout is drained by the relayout and
not checked here; on a node that keeps its layout, the number of shares counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.kubernetes.pods import requested
from gpuform.provider.nodes.cluster import Manifest, labels, pod_name
from gpuform.provider.nodes.drain import uses_gpu
from gpuform.provider.nodes.layout import CONFIG, LAYOUT
from infra.model.amounts import whole
from infra.model.labels import DEPLOY_DEVICE_PLUGIN

WHOLE = "all-disabled"  # the layout of GPUs without MIG
DEFAULT = "default"  # the configuration of nodes without the label
CLAIMED = "dra"  # stands for GPUs allocated by claim, without a device plugin
_PREFIX = "nvidia.com/"


def moves(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    """Whether the node gets another configuration of the device plugin without a drain by a relayout."""
    sharing = inputs.get("sharing")
    if not sharing or not (_keeps_layout(node, sharing) or sharing.get("refuses")):
        return False
    before, wanted = _ways(node, inputs)
    return before != wanted


def claimed(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    """Whether the node's GPUs are allocated by claim so far; the device plugin knows of no claim."""
    return _ways(node, inputs)[0] == CLAIMED


def overdrawn(
    node: Manifest, inputs: Mapping[str, Any], pods: Sequence[Manifest], claiming: Sequence[Manifest] = ()
) -> str:
    """Why the node cannot change its sharing while ``pods`` run; empty if it can.

    ``claiming`` are the pods that have its GPUs by claim, if the device plugin is to take over.
    """
    if claiming:
        names = ", ".join(pod_name(pod) for pod in claiming)
        return (
            f"node {node['metadata']['name']}: its pods have GPUs by ResourceClaim, which the device plugin "
            f"does not know ({names}); let them end, or scale them down, and run again"
        )
    sharing = inputs["sharing"]
    offers: Mapping[str, int] = sharing["offers"] if _keeps_layout(node, sharing) else {}
    used: Counter[str] = Counter()
    for pod in pods:
        used.update(asked(pod))
    short = [f"{count} {name} of {offers.get(name, 0)}" for name, count in sorted(used.items())]
    if not any(count > offers.get(name, 0) for name, count in used.items()):
        return ""
    names, wanted = ", ".join(pod_name(pod) for pod in pods if uses_gpu(pod)), _ways(node, inputs)[1]
    return (
        f"node {node['metadata']['name']}: its pods would use {', '.join(short)}, once it is shared as "
        f"{wanted} ({names}); let them end, or scale them down, and run again"
    )


def _keeps_layout(node: Manifest, sharing: Mapping[str, Any]) -> bool:
    """Whether the MIG layout stays the same; a name may have come to stand for another layout."""
    noted = (node["metadata"].get("annotations") or {}).get(LAYOUT)
    renewed = bool(sharing.get("content")) and noted != sharing["content"]
    return not renewed and labels(node).get(CONFIG, WHOLE) == sharing.get("layout", WHOLE)


def asked(pod: Manifest) -> Counter[str]:
    return requested(pod.get("spec") or {}, _of)


def kept(node: Manifest, inputs: Mapping[str, Any], pods: Sequence[Manifest]) -> str:
    """Text in a preview for a harmless change; empty if no pod uses a GPU."""
    names = ", ".join(pod_name(pod) for pod in pods if uses_gpu(pod))
    before, wanted = _ways(node, inputs)
    way = f"node {node['metadata']['name']}: shared as {before} -> {wanted}"
    return names and f"{way}; running pods keep their devices, MPS clients end with the MPS daemon: {names}"


def _ways(node: Manifest, inputs: Mapping[str, Any]) -> tuple[str, str]:
    """The node's present configuration of the device plugin, and the new one."""
    key = inputs["sharing"]["label"]
    return _way(labels(node), key), _way(inputs.get("labels") or {}, key)


def _way(found: Mapping[str, str], key: str) -> str:
    return CLAIMED if found.get(DEPLOY_DEVICE_PLUGIN) == "false" else found.get(key, DEFAULT)


def _of(container: Mapping[str, Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    each = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return Counter({key: whole(count) for key, count in each.items() if key.startswith(_PREFIX)})
