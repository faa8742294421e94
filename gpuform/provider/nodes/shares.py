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

from gpuform.kubernetes.pods import sum_requests
from gpuform.provider.nodes.cluster import Manifest, labels, pod_name
from gpuform.provider.nodes.drain import uses_gpu
from gpuform.provider.nodes.layout import CONFIG, DISABLED, LAYOUT, offers_of
from infra.model.base.labels import DEPLOY_DEVICE_PLUGIN
from infra.model.base.quantities import whole_number

DEFAULT = "default"  # the configuration of nodes without the label
BY_CLAIM = "dra"  # stands for GPUs allocated by claim, without a device plugin
_PREFIX = "nvidia.com/"


def changes_sharing(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    """Whether the node gets another configuration of the device plugin without a drain by a relayout."""
    sharing = inputs.get("sharing")
    if not sharing or not (_keeps_layout(node, sharing) or sharing.get("refuses")):
        return False
    before, after = _configurations(node, inputs)
    return before != after


def is_claimed(node: Manifest, inputs: Mapping[str, Any]) -> bool:
    """Whether the node's GPUs are allocated by claim so far; the device plugin knows of no claim."""
    return _configurations(node, inputs)[0] == BY_CLAIM


def sharing_refusal(
    node: Manifest, inputs: Mapping[str, Any], pods: Sequence[Manifest], claim_pods: Sequence[Manifest] = ()
) -> str:
    """Why the node cannot change its sharing while ``pods`` run; empty if it can.

    ``claim_pods`` are the pods that have its GPUs by claim, if the device plugin is to take over.
    """
    if claim_pods:
        names = ", ".join(pod_name(pod) for pod in claim_pods)
        return (
            f"node {node['metadata']['name']}: its pods have GPUs by ResourceClaim, which the device plugin "
            f"does not know ({names}); let them end, or scale them down, and run again"
        )
    sharing = inputs["sharing"]
    offers = (offers_of(node, sharing["offers"]) or {}) if _keeps_layout(node, sharing) else {}
    used: Counter[str] = Counter()
    for pod in pods:
        used.update(requests_of(pod))
    shortages = [f"{count} {name} of {offers.get(name, 0)}" for name, count in sorted(used.items())]
    if not any(count > offers.get(name, 0) for name, count in used.items()):
        return ""
    names, after = ", ".join(pod_name(pod) for pod in pods if uses_gpu(pod)), _configurations(node, inputs)[1]
    return (
        f"node {node['metadata']['name']}: its pods would use {', '.join(shortages)}, once it is shared as "
        f"{after} ({names}); let them end, or scale them down, and run again"
    )


def _keeps_layout(node: Manifest, sharing: Mapping[str, Any]) -> bool:
    """Whether the MIG layout stays the same; a name may have come to stand for another layout."""
    content = (node["metadata"].get("annotations") or {}).get(LAYOUT)
    is_renewed = bool(sharing.get("content")) and content != sharing["content"]
    return not is_renewed and labels(node).get(CONFIG, DISABLED) == sharing.get("layout", DISABLED)


def requests_of(pod: Manifest) -> Counter[str]:
    return sum_requests(pod.get("spec") or {}, _container_requests)


def sharing_notice(node: Manifest, inputs: Mapping[str, Any], pods: Sequence[Manifest]) -> str:
    """Text in a preview for a harmless change; empty if no pod uses a GPU."""
    names = ", ".join(pod_name(pod) for pod in pods if uses_gpu(pod))
    before, after = _configurations(node, inputs)
    text = f"node {node['metadata']['name']}: shared as {before} -> {after}"
    return names and f"{text}; running pods keep their devices, MPS clients end with the MPS daemon: {names}"


def _configurations(node: Manifest, inputs: Mapping[str, Any]) -> tuple[str, str]:
    """The node's present configuration of the device plugin, and the new one."""
    key = inputs["sharing"]["label"]
    return _configuration(labels(node), key), _configuration(inputs.get("labels") or {}, key)


def _configuration(node_labels: Mapping[str, str], key: str) -> str:
    return BY_CLAIM if node_labels.get(DEPLOY_DEVICE_PLUGIN) == "false" else node_labels.get(key, DEFAULT)


def _container_requests(container: Mapping[str, Any]) -> Counter[str]:
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return Counter({key: whole_number(count) for key, count in amounts.items() if key.startswith(_PREFIX)})
