"""Nodes whose GPUs are to be shared in another way by the device plugin, while pods use them.

The plugin starts again with its new configuration, and the kubelet keeps running pods: they hold what they
were given. So a node must not come to offer less of a resource than is in use there, or new pods would be put
beside those that the count no longer knows. More of the same is no harm. Where a node gets another MIG
layout, the relayout drains it, and nothing is asked here; where it keeps the one it has, its shares count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.plugins.nodes.cluster import Manifest, labels, pod_name
from gpuform.plugins.nodes.drain import uses_gpu
from gpuform.plugins.nodes.layout import CONFIG, LAYOUT
from gpuform.pod_requests import requested
from infra.model.labels import DEPLOY_DEVICE_PLUGIN
from infra.model.quantity import whole

WHOLE = "all-disabled"  # the layout of GPUs that are not cut
DEFAULT = "default"  # the configuration of nodes that name none
CLAIMED = "dra"  # what is said of nodes whose GPUs are had by claim, and no device plugin runs
_PREFIX = "nvidia.com/"


def moves(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    """Whether it gets another configuration of the device plugin, and no relayout drains it for that."""
    sharing = inputs.get("sharing")
    if not sharing or not (_keeps_layout(node, sharing) or sharing.get("refuses")):
        return False
    before, wanted = _ways(node, inputs)
    return before != wanted


def claimed(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    """Whether its GPUs are had by claim until now: the device plugin that comes knows of no claim."""
    return _ways(node, inputs)[0] == CLAIMED


def overdrawn(
    node: Manifest, inputs: Mapping[str, Any], pods: Sequence[Manifest], claiming: Sequence[Manifest] = ()
) -> str:
    """Why the node cannot go over to the new way while ``pods`` run; empty when it can.

    ``claiming`` are those that have its GPUs by claim, where the device plugin is to take over.
    """
    if claiming:
        names = ", ".join(pod_name(pod) for pod in claiming)
        return (
            f"node {node['metadata']['name']}: its pods have GPUs by claim, of which the device plugin knows "
            f"nothing ({names}); let them end, or scale them down, and run again"
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
        f"node {node['metadata']['name']}: its pods would have {', '.join(short)}, once it is shared as "
        f"{wanted} ({names}); let them end, or scale them down, and run again"
    )


def _keeps_layout(node: Manifest, sharing: Mapping[str, Any]) -> bool:
    """Whether its GPUs stay as they are cut; the same name may have come to mean another layout."""
    noted = (node["metadata"].get("annotations") or {}).get(LAYOUT)
    renewed = bool(sharing.get("content")) and noted != sharing["content"]
    return not renewed and labels(node).get(CONFIG, WHOLE) == sharing.get("layout", WHOLE)


def asked(pod: Manifest) -> Counter[str]:
    """GPU resources that the pod holds."""
    return requested(pod.get("spec") or {}, _of)


def kept(node: Manifest, inputs: Mapping[str, Any], pods: Sequence[Manifest]) -> str:
    """What a preview says of a change that is no harm; empty where no pod uses a GPU."""
    names = ", ".join(pod_name(pod) for pod in pods if uses_gpu(pod))
    before, wanted = _ways(node, inputs)
    way = f"node {node['metadata']['name']}: shared as {before} -> {wanted}"
    return names and f"{way}; running pods keep what they hold, clients of MPS end with its daemon: {names}"


def _ways(node: Manifest, inputs: Mapping[str, Any]) -> tuple[str, str]:
    """The plugin's configuration that the node has, and the one that it gets."""
    key = inputs["sharing"]["label"]
    return _way(labels(node), key), _way(inputs.get("labels") or {}, key)


def _way(found: Mapping[str, str], key: str) -> str:
    return CLAIMED if found.get(DEPLOY_DEVICE_PLUGIN) == "false" else found.get(key, DEFAULT)


def _of(container: Mapping[str, Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    each = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return Counter({key: whole(count) for key, count in each.items() if key.startswith(_PREFIX)})
