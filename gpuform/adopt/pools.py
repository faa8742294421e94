"""Pools of a cluster that others run: nodes of one group with the same GPUs and sharing; their selector."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.adopt.gpus import NodeGpus, has_gpus, read_gpus
from gpuform.checkout.errors import InputError
from gpuform.checkout.listing import abbreviate
from gpuform.manifests.documents import entries, mapping_at
from gpuform.usage.nodes import Node
from infra.model.base import labels
from infra.model.pool.keys import OURS, SET_LATER, find_owner, taint_setter

Json = Mapping[str, Any]
_GROUPS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "alpha.eksctl.io/nodegroup-name",
    "kubernetes.azure.com/agentpool",
    "agentpool",
    labels.NODE_POOL,
    "kops.k8s.io/instancegroup",
    "magnum.openstack.org/nodegroup",
    "doks.digitalocean.com/node-pool",
    "node.coreweave.cloud/nodepool",
)
"""Labels by which clouds and provisioners name a node's group; pools follow them, in this order."""
_LAST = (
    labels.GPU_PRODUCT,
    labels.INSTANCE_TYPE,
    "nvidia.com/gpu.sharing-strategy",
    "nvidia.com/gpu.replicas",
    "nvidia.com/mig.strategy",
    labels.GPU_COUNT,
    labels.ZONE,
    labels.HOSTNAME,
)
"""Labels that select nodes if no label of the cluster's own does."""
_NOISE = (
    "kubernetes.io",
    "k8s.io",
    "nvidia.com",
    "karpenter.sh",
    "karpenter.k8s.aws",
    "amazonaws.com",
    "gpuform.io",
)
_MOST_KEYS = 3


@dataclass(frozen=True)
class Group:
    """Nodes of one pool. ``taints`` are those of all of them, the GPU taint included."""

    name: str
    gpus: NodeGpus
    counts: tuple[int, ...]
    nodes: tuple[Node, ...]
    taints: tuple[Json, ...]
    selector: Mapping[str, str]


def find_groups(
    nodes: Sequence[Node],
    taints: Mapping[str, Sequence[Json]],
    plugin_of: Callable[[Node], Json],
    layout_of: Callable[[Node], Sequence[Json]],
) -> tuple[list[Group], list[InputError]]:
    """The groups in the order of their names, and why nodes belong to none. ``taints``: by node."""
    found: dict[str, list[tuple[Node, NodeGpus]]] = {}
    left_out: list[InputError] = []
    for node in nodes:
        if not has_gpus(node):
            continue
        try:
            gpus = read_gpus(node, plugin_of(node), layout_of(node))
        except InputError as error:
            left_out.append(error)
            continue
        parts = [_group_label(node), gpus.model, gpus.sharing]
        found.setdefault(json.dumps(parts, sort_keys=True), []).append((node, gpus))
    groups: list[Group] = []
    for members in found.values():
        own = [node for node, _ in members]
        selector = find_selector(own, nodes)
        if selector is None:
            fact = "no labels select these nodes and no others"
            left_out.append(
                InputError(abbreviate([node.name for node in own]), fact, "label them, and adopt again")
            )
            continue
        counts = tuple(sorted({gpus.count for _, gpus in members}))
        taken = {group.name for group in groups}
        name = _unique(_name(own[0], members[0][1]), taken)
        of_each = [declared_taints(taints[node.name]) for node in own]
        common = tuple(taint for taint in of_each[0] if all(taint in others for others in of_each))
        groups.append(Group(name, members[0][1], counts, tuple(own), common, selector))
    return sorted(groups, key=lambda group: group.name), left_out


def declared_taints(taints: Iterable[Any]) -> tuple[Json, ...]:
    """Taints that a pool declares: without those that come and go with a node's state."""
    kept = [
        {"key": taint["key"], "value": str(taint.get("value") or ""), "effect": taint.get("effect")}
        for taint in taints
        if isinstance(taint, Mapping) and "key" in taint and taint_setter(str(taint["key"])) is None
    ]
    return tuple(sorted(kept, key=lambda taint: (taint["key"], str(taint["effect"]))))


def taints_of(raw: Json) -> Sequence[Any]:
    return entries(mapping_at(raw, ("spec",)), "taints")


def _group_label(node: Node) -> str:
    keys = (labels.POOL, *_GROUPS)
    return next((f"{key}={node.labels[key]}" for key in keys if node.labels.get(key)), "")


def find_selector(own: Sequence[Node], nodes: Sequence[Node]) -> dict[str, str] | None:
    """The fewest labels that of all nodes only its ``own`` have; the best known ones first."""
    first, names = own[0].labels, {node.name for node in own}
    having = {
        key: {node.name for node in nodes if node.labels.get(key) == value}
        for key, value in first.items()
        if value and (key in _GROUPS + _LAST or _is_own(key))
    }
    usable = sorted((key for key, of in having.items() if names <= of), key=lambda key: (_rank(key), key))
    for size in range(1, _MOST_KEYS + 1):
        for keys in itertools.combinations(usable, size):
            if set.intersection(*(having[key] for key in keys)) == names:
                return {key: first[key] for key in keys}
    return None


def _is_own(key: str) -> bool:
    """Whether the label is one of the cluster's administrators, not of Kubernetes or a program."""
    return key not in SET_LATER and find_owner(key, {**OURS, **dict.fromkeys(_NOISE, "a program")}) is None


def _rank(key: str) -> int:
    order = (*_GROUPS, "", *_LAST)
    return order.index(key) if key in order else order.index("")


def _name(node: Node, gpus: NodeGpus) -> str:
    text = _group_label(node).partition("=")[2] or gpus.model
    return re.sub("[^a-z0-9]+", "-", text.lower())[:45].strip("-") or "gpus"


def _unique(name: str, taken: set[str]) -> str:
    numbered: Iterator[str] = (f"{name}-{number}" for number in itertools.count(2))
    return name if name not in taken else next(text for text in numbered if text not in taken)
