"""Writes an environment that declares what a cluster has, and lists what it cannot declare.

Each part is checked by the environment's own rules: what they refuse is left out, with their reason.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from gpuform.adopt import configs
from gpuform.adopt.objects import Found
from gpuform.adopt.pools import Group, find_groups, taints_of
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.listing import abbreviate
from gpuform.kubernetes.kinds import (
    CLUSTER_POLICY,
    CLUSTER_QUEUE,
    DAEMON_SET,
    NAMESPACE,
    NODE,
    NODE_POOL,
    PROMETHEUS,
    RESOURCE_QUOTA,
    RESOURCE_SLICE,
    Kind,
)
from gpuform.manifests.documents import mapping_at
from gpuform.usage.cluster_objects import parse_claims
from gpuform.usage.nodes import Node, parse_node
from infra.config import parse
from infra.model.base import labels
from infra.model.base.namespaces import BUILT_IN
from infra.model.environment import Environment
from infra.model.pool import allocatable

Json = Mapping[str, Any]
Document = dict[str, Any]
NAME = "adopted"
_GUIDE = "docs/howto/existing-cluster.md"
_ENTRY = re.compile(r"(?P<key>pools|namespaces)\[(?P<index>\d+)\]")


@dataclass(frozen=True)
class Adopted:
    """``document``: the environment as written to a file; ``groups``: the nodes of its pools.

    ``without_pool``: nodes with GPUs that no pool declares, and why; ``left_out``: the same of all else.
    """

    environment: Environment
    document: Document
    groups: Sequence[Group]
    without_pool: Sequence[InputError]
    left_out: Sequence[InputError]


def adopt(found: Found, cluster: Json, name: str = NAME) -> Adopted:
    """Declare the cluster; ``cluster`` is the environment's, ``name`` too unless nodes have gpuform's labels.

    Failure if no node with GPUs can be declared.
    """
    claims = parse_claims(found.all(RESOURCE_SLICE), ())
    raw = {item["metadata"]["name"]: item for item in found.all(NODE)}
    nodes = sorted((parse_node(item, claims) for item in raw.values()), key=lambda node: node.name)
    sources = found.all(CLUSTER_POLICY), found.all(DAEMON_SET), found.config_map
    # Read once, not for each node that uses it.
    plugin_of = cache(partial(configs.plugin_config, *sources))
    layout_of = cache(partial(configs.mig_layout, *sources))
    groups, without_pool = find_groups(
        nodes,
        {key: taints_of(item) for key, item in raw.items()},
        lambda node: plugin_of(node.labels.get(labels.DEVICE_PLUGIN_CONFIG, "")),
        lambda node: layout_of(node.labels.get(labels.MIG_CONFIG, "")),
    )
    if not groups:
        reason = "; ".join(map(str, without_pool[:3])) or "no node has a label or resource of NVIDIA's"
        raise Failure("cluster", f"has no GPUs that a pool can declare: {reason}", f"see {_GUIDE}")
    document = _document(_own_name(nodes) or name, cluster, groups)
    env, refused = _accepted(document)
    without_pool += refused
    left_out = [_denied(kind) for kind in found.denied]
    spaces = [_namespace(env, found, item) for item in found.all(RESOURCE_QUOTA) if _gpu_limits(item)]
    left_out += [item for item in spaces if isinstance(item, InputError)]
    if declared := [item for item in spaces if not isinstance(item, InputError)]:
        document["namespaces"] = declared
        env, refused = _accepted(document)
        left_out += refused
    if not document.get("namespaces"):
        document.pop("namespaces", None)
    kept = {pool["name"] for pool in document["pools"]}
    used = [group for group in groups if group.name in kept]
    return Adopted(env, document, used, without_pool, [*left_out, *_parts(found)])


def _own_name(nodes: Sequence[Node]) -> str:
    """The name of the environment in the nodes' labels, if gpuform runs there already; empty without."""
    names = Counter(node.labels[labels.ENVIRONMENT] for node in nodes if labels.ENVIRONMENT in node.labels)
    return names.most_common(1)[0][0] if names else ""


def _document(name: str, cluster: Json, groups: Sequence[Group]) -> Document:
    operator: Document = {"mode": "existing"}
    taint = _common_taint(groups)
    if taint is None:
        operator["gpu_taint"] = "none"
    elif (taint["key"], taint["value"]) != (labels.NVIDIA_GPU, "true"):
        operator["gpu_taint"] = {key: taint[key] for key in ("key", "value")}
    own = {group.gpus.model: dict(group.gpus.own) for group in groups if group.gpus.own}
    return {
        "name": name,
        **({"gpus": own} if own else {}),
        "cluster": dict(cluster),
        "gpu_operator": operator,
        "pools": [_pool(group, taint) for group in groups],
    }


def _common_taint(groups: Sequence[Group]) -> Json | None:
    """The taint of all nodes with GPUs: NVIDIA's, or else the first; None if none is common to them."""
    of_all = [
        [{"key": one["key"], "value": one["value"]} for one in group.taints if one["effect"] == "NoSchedule"]
        for group in groups
    ]
    common = [taint for taint in of_all[0] if all(taint in others for others in of_all)]
    return next((taint for taint in common if taint["key"] == labels.NVIDIA_GPU), next(iter(common), None))


def _pool(group: Group, gpu_taint: Json | None) -> Document:
    counts = group.counts[0] if len(group.counts) == 1 else list(group.counts)
    pool: Document = {
        "name": group.name,
        "gpu": {"models": [group.gpus.model], "count": counts},
        "selector": dict(group.selector),
    }
    own = [
        {key: value for key, value in taint.items() if value}
        for taint in group.taints
        if gpu_taint is None or taint["effect"] != "NoSchedule" or taint["key"] != gpu_taint["key"]
    ]
    if own:
        pool["taints"] = own
    if group.gpus.sharing["kind"] != "exclusive":
        pool["sharing"] = dict(group.gpus.sharing)
    return pool


def _accepted(document: Document) -> tuple[Environment, list[InputError]]:
    """The environment, without the entries that its rules refuse; these are removed from ``document``."""
    refused: list[InputError] = []
    while True:
        try:
            return parse(document), refused
        except InputError as errors:
            error = errors.errors[0]
            match = _ENTRY.match(error.path)
            if match is None or (match["key"] == "pools" and len(document["pools"]) == 1):
                raise Failure("cluster", f"cannot be declared: {error}", f"see {_GUIDE}") from None
            item = document[match["key"]].pop(int(match["index"]))
            refused.append(InputError(f"{match['key'][:-1]} {item['name']}", error.fact, error.remedy))


def _gpu_limits(quota: Json) -> dict[str, int]:
    """What a ResourceQuota allows of GPU resources."""
    hard = mapping_at(quota, ("spec", "hard"))
    prefix = allocatable.quota_key(labels.NVIDIA_PREFIX)
    return {key: int(n) for key, n in hard.items() if key.startswith(prefix) and str(n).isdecimal()}


def _namespace(env: Environment, found: Found, quota: Json) -> Document | InputError:
    """The namespace of a quota: numbers of each pool, or why they cannot be declared."""
    space, limits = str(quota["metadata"].get("namespace")), _gpu_limits(quota)
    subject = f"quota {space}/{quota['metadata']['name']}"
    offers = {
        pool.name: [allocatable.quota_key(key) for key in allocatable.gpu_resources(pool)]
        for pool in env.pools
    }
    unlimited = sorted({key for keys in offers.values() for key in keys} - limits.keys())
    if unlimited:
        fact = f"sets no limit for {unlimited[0]}; a quota of gpuform limits every resource of the pools"
        return InputError(subject, fact, "it stays as it is")
    amounts: dict[str, Any] = {}
    counted: set[str] = set()
    for pool in env.pools:
        keys = offers[pool.name]
        own = {key: 0 if key in counted else limits[key] for key in keys}
        shares_a_resource = any(set(keys) & set(other) for name, other in offers.items() if name != pool.name)
        counted |= set(keys)
        if any(own.values()) or (shares_a_resource and any(limits[key] for key in keys)):
            amounts[pool.name] = own[keys[0]] if len(keys) == 1 else {_part(key): n for key, n in own.items()}
    level = {item["metadata"]["name"]: item["metadata"].get("labels") or {} for item in found.all(NAMESPACE)}
    if space in BUILT_IN:
        return {"name": space, "quota": amounts}
    enforced = level.get(space, {}).get(labels.PSA_ENFORCE, "privileged")
    return {"name": space, "pod_security": enforced, "quota": amounts}


def _part(key: str) -> str:
    """A slice's name in a quota: the resource without prefix and suffix, or ``gpu``."""
    return key.partition("nvidia.com/")[2].removeprefix("mig-").removesuffix(labels.SHARED)


def _denied(kind: Kind) -> InputError:
    fact = f"cannot be read: the right to get and list {kind.resource} is missing"
    return InputError(f"{kind.name}s", fact, f"grant it, or read on without: {_GUIDE}")


def _parts(found: Found) -> Iterator[InputError]:
    """Programs beside the GPUs, which an environment does not declare."""
    here = partial(_names, found)
    if pools := here(NODE_POOL):
        remedy = "gpuform selects its nodes, and does not change NodePools"
        yield InputError("Karpenter", f"it makes nodes by NodePool {pools}", remedy)
    if queues := here(CLUSTER_QUEUE):
        remedy = "they stay as they are; `existing: [kueue]` adds queues of your own"
        yield InputError("Kueue", f"it has queues {queues}", remedy)
    if found.all(CLUSTER_POLICY):
        fact = f"ClusterPolicy {here(CLUSTER_POLICY)} configures driver, sharing and MIG"
        yield InputError("NVIDIA's operator", fact, "gpu_operator.mode existing leaves it alone")
    for item in found.all(PROMETHEUS):
        tags = mapping_at(item, ("spec", "ruleSelector", "matchLabels"))
        name, namespace = item["metadata"]["name"], item["metadata"].get("namespace")
        chosen = ", ".join(f"{key}: {value}" for key, value in tags.items())
        block = f"service: prometheus-operated.{namespace}:9090, labels: {{{chosen}}}"
        remedy = f"monitoring: {{prometheus: {{{block}}}}} has it measure the pools"
        yield InputError("Prometheus", f"{namespace}/{name} is there", remedy)


def _names(found: Found, kind: Kind) -> str:
    return abbreviate([item["metadata"]["name"] for item in found.all(kind)])
