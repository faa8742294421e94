"""Controllers of others (``existing``): they are there, new enough, and act on the objects of the stack."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.checkout.listing import abbreviate
from gpuform.clouds.existing.preflight.cluster import (
    LiveCluster,
    object_name,
)
from gpuform.kubernetes.controllers import containers, image_name
from gpuform.kubernetes.kinds import CLUSTER_QUEUE, CONFIG_MAP, DEPLOYMENT, NODE_POOL, RESOURCE_FLAVOR, Kind
from gpuform.kubernetes.selectors import selects
from gpuform.manifests.documents import entries, mapping_at, mapping_in
from gpuform.stack.preflight.check import Check, Result
from infra.model.base import labels
from infra.model.environment import Environment
from infra.plan import karpenter_patches, queues

Json = Mapping[str, Any]
_IMAGES = {
    "cert-manager": "cert-manager-controller",
    "keda": "keda",
    "kserve": "kserve-controller",
    "kueue": "kueue",
}
"""Names of their images (each project's chart)."""
_FIRST = {"cert-manager": (1, 15), "keda": (2, 8), "kserve": (0, 17), "kueue": (0, 15)}
"""First versions with what the stack's objects need: that of KServe's installation guide, a trigger's
ignoreNullValues (keda#3073), the deployment mode Standard (kserve#4608), and the API kueue.x-k8s.io/v1beta2
(Kueue's release notes)."""
_CONFIGURATION = "kueue-manager-config"
_KINDS = {"deployment": "deployment", "job": "batch/job", "pod": "pod", "notebook": "statefulset"}
"""Kueue's name of the framework by kind of workload."""


def checks(env: Environment, by_hand: str) -> Iterator[Check]:
    for name in env.existing:
        command = f"{by_hand} get {DEPLOYMENT.resource} -A -o wide"
        yield Check(name, command, partial(judge, name))
    if karpenter_patches.selected(env):
        yield Check("Karpenter's NodePools", f"{by_hand} get {NODE_POOL.resource} -o yaml", judge_node_pools)


def judge(name: str, cluster: LiveCluster) -> Result:
    found = [
        (item, container) for item, container in _running(cluster) if image_name(container) == _IMAGES[name]
    ]
    if not found:
        return Result("FAIL", "is not there, and `existing` names it", "leave it out, or install it first")
    item, container = found[0]
    match = re.search(r":v?(\d+)\.(\d+)", str(container["image"]).partition("@")[0])
    if match is None:
        fact = f"{object_name(item)}: its version is not in {container['image']}"
        return Result("SKIP", fact, f"make sure that it is {_text(name)} or newer")
    if (int(match[1]), int(match[2])) < _FIRST[name]:
        fact = f"{object_name(item)} is {match[1]}.{match[2]}, and the stack needs {_text(name)}"
        return Result("FAIL", fact, "upgrade it")
    if name == "kueue" and (refusal := _refusal(cluster, str(item["metadata"].get("namespace")))):
        return refusal
    return Result("PASS", f"{object_name(item)} is {match[1]}.{match[2]}")


def judge_node_pools(cluster: LiveCluster) -> Result:
    """Whether NodePools of others give their nodes the labels of the pools that select them."""
    found = {item["metadata"]["name"]: item for item in cluster.list_objects(NODE_POOL)}
    pools = karpenter_patches.selected(cluster.env)
    if missing := sorted(pools.keys() - found.keys()):
        return Result("FAIL", f"NodePool {missing[0]} is not there", "correct the pool's selector")
    for name, pool in pools.items():
        tags = mapping_at(found[name], ("spec", "template", "metadata", "labels"))
        if tags.get(labels.POOL) != pool.name:
            fact = (
                f"NodePool {name} gives its nodes no label {labels.POOL}: pods of pool {pool.name} start none"
            )
            fix = f"patch it with nodepool-{name}.yaml of `gpuform render`; Karpenter then replaces its nodes"
            return Result("SKIP", fact, fix)
    return Result("PASS", "they give their nodes the labels of the pools")


def _text(name: str) -> str:
    return ".".join(map(str, _FIRST[name]))


def _running(cluster: LiveCluster) -> Iterator[tuple[Json, Json]]:
    for item in cluster.list_objects(DEPLOYMENT):
        for container in containers(item):
            yield item, container


def _refusal(cluster: LiveCluster, namespace: str) -> Result | None:
    """Why Kueue would not act as the stack needs; None if it does."""
    env = cluster.env
    for kind, names in _names(env):
        taken = [
            item["metadata"]["name"]
            for item in cluster.list_objects(kind)
            if item["metadata"]["name"] in names
            and (item["metadata"].get("labels") or {}).get(labels.ENVIRONMENT) != env.name
        ]
        if taken:
            fact = f"{kind.name} {abbreviate(taken)} is of others, and the update would change it"
            return Result("FAIL", fact, "give the team or the pool another name")
    config_map = cluster.find(CONFIG_MAP, namespace, _CONFIGURATION)
    config = mapping_in(mapping_at(config_map, ("data",)).get("controller_manager_config.yaml"))
    if not config:
        fact = f"its configuration {namespace}/{_CONFIGURATION} was not found"
        return Result("SKIP", fact, "compare it with docs/howto/queues.md")
    excluded = entries(mapping_at(config, ("resources",)), "excludeResourcePrefixes")
    if missing := [name for name in queues.not_counted(env) if not _covers(excluded, name)]:
        fact = f"it counts {missing[0]}, of which the stack's queues have no quota: nothing would be admitted"
        return Result("FAIL", fact, f"add {', '.join(missing)} to resources.excludeResourcePrefixes")
    kinds = {_KINDS.get(work.kind, "deployment") for work in env.workloads if work.queue}
    known = entries(mapping_at(config, ("integrations",)), "frameworks")
    if known and (absent := sorted(kinds - set(known))):
        return Result("FAIL", f"it does not manage {', '.join(absent)}", "add it to integrations.frameworks")
    selector = mapping_at(config, ("managedJobsNamespaceSelector",)) or {}
    for team in env.queues.teams if env.queues else ():
        for space in team.namespaces:
            if not selects(selector, {labels.NAMESPACE_NAME: space}):
                fact = f"managedJobsNamespaceSelector leaves out namespace {space}"
                return Result("FAIL", fact, "select it there")
    return None


def _names(env: Environment) -> Iterator[tuple[Kind, set[str]]]:
    if env.queues:
        yield CLUSTER_QUEUE, {team.name for team in env.queues.teams}
        yield RESOURCE_FLAVOR, {queues.flavor_name(env, pool) for pool in queues.flavored_pools(env)}


def _covers(prefixes: Sequence[Any], name: str) -> bool:
    """Whether Kueue leaves out resources of this name; it compares prefixes."""
    return any(name.startswith(str(prefix)) for prefix in prefixes)
