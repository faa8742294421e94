"""Compares live nodes and the operands' configuration with the plan.

Of nodes: labels, taints, MIG layout, driver, and allocatable GPUs. Of ConfigMaps: each key, since the engine
sees only the keys that it has written, but the operands also read keys that others added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from gpuform.stack.drift.rules import DriftRules, Finding, at
from infra.model import labels
from infra.model.amounts import whole
from infra.model.environment import Environment
from infra.model.offer import gpus_of
from infra.model.pool import Pool
from infra.plan.gpu_operator import driver_version
from infra.plan.nodes import simulated_nodes
from infra.plan.sharing import (
    device_plugin_config_map,
    mig_config_name,
    mig_parted_config_map,
    offered,
    pool_labels,
    pool_taints,
)

Node = Mapping[str, Any]

_MIG_DONE = "success"  # the MIG manager's state of an applied layout


def check(env: Environment, rules: DriftRules, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Differences, pool by pool. Nodes without a pool of ours are ignored."""
    found = list(nodes)
    for pool in env.pools:
        names = [str(one["metadata"]["name"]) for one in simulated_nodes(env, pool)]
        selector = (pool.selector or rules.selector(env, pool)).items()
        members = [
            node
            for node in found
            if (node["metadata"]["name"] in names if names else selector <= _labels(node).items())
        ]
        if not env.by_karpenter(pool):  # else the number follows the workload
            yield from _count(pool, names, members)
        for node in members:
            yield from _node(env, pool, node)


def _labels(node: Node) -> Mapping[str, str]:
    found: Mapping[str, str] = node["metadata"].get("labels") or {}
    return found


def _count(pool: Pool, names: Sequence[str], members: Sequence[Node]) -> Iterator[Finding]:
    if pool.selector and not members:
        wanted = "a node that its selector matches"
        yield Finding(f"pool {pool.name}", "", "missing", "cluster", wanted, "none")
    there, count = {str(node["metadata"]["name"]) for node in members}, len(members)
    for name in names:
        if name not in there:
            yield Finding(f"Node {name}", "", "missing", "cluster", f"a node of pool {pool.name}", "none")
    declared = pool.nodes is not None or pool.elastic
    if names or not declared or pool.least <= count <= pool.most:
        return
    wanted = f"{pool.least} to {pool.most}" if pool.elastic else str(pool.least)
    how: Literal["missing", "added"] = "missing" if count < pool.least else "added"
    yield Finding(f"pool {pool.name}", "nodes", how, "cluster", wanted, str(count))


def _node(env: Environment, pool: Pool, node: Node) -> Iterator[Finding]:
    name = f"Node {node['metadata']['name']}"
    tainted = {(taint["key"], taint["effect"]): taint.get("value", "") for taint in _taints(node)}
    if any(key == labels.GPU_NOT_READY for key, _ in tainted):
        return  # not ready yet: the readiness gate watches it
    has = _labels(node)
    for key, value in (*pool_labels(env, pool).items(), *_by_operands(env, pool).items()):
        yield from _compare(name, at("metadata.labels", key), value, has.get(key, ""))
    for taint in pool_taints(env, pool):
        path = f"spec.taints[{taint['key']}:{taint['effect']}]"
        missing = (taint["key"], taint["effect"]) not in tainted
        live = "none" if missing else tainted[taint["key"], taint["effect"]]
        if missing or live != taint["value"]:
            yield Finding(name, path, "missing" if missing else "changed", "cluster", taint["value"], live)
    gpus = gpus_of(pool, has)
    if gpus in pool.gpu_counts:
        yield from _offers(name, offered(env, pool, gpus), node.get("status", {}).get("allocatable", {}))
    else:
        key, wanted = labels.INSTANCE_GPU_COUNT, " or ".join(map(str, pool.gpu_counts))
        yield from _compare(name, at("metadata.labels", key), wanted, has.get(key, ""))


def _by_operands(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels with the configuration given to NVIDIA's operands, and their report that it is applied."""
    wanted = {}
    config = mig_config_name(pool)
    if config is not None and env.has_mig_manager:
        wanted = {labels.MIG_CONFIG: config, labels.MIG_CONFIG_STATE: _MIG_DONE}
    if pool.gpus and env.ownership.driver == "operator":  # elsewhere the driver comes with the pinned image
        wanted[labels.DRIVER_VERSION] = driver_version(env)
    return wanted


def _offers(name: str, planned: Mapping[str, int], allocatable: Mapping[str, Any]) -> Iterator[Finding]:
    live = {key: whole(count) for key, count in allocatable.items() if key.startswith(labels.NVIDIA_PREFIX)}
    for key in sorted({*planned, *live}):
        if planned.get(key, 0) != live.get(key, 0):
            wanted, has = str(planned.get(key, 0)), str(live.get(key, 0))
            yield Finding(name, at("status.allocatable", key), "changed", "cluster", wanted, has)


def _compare(name: str, path: str, wanted: str, has: str) -> Iterator[Finding]:
    if has != wanted:
        yield Finding(name, path, "changed" if has else "missing", "cluster", wanted, has or "none")


def _taints(node: Node) -> Sequence[Mapping[str, str]]:
    taints: Sequence[Mapping[str, str]] = node.get("spec", {}).get("taints") or ()
    return taints


ConfigMap = Mapping[str, Any]


def planned(env: Environment) -> tuple[ConfigMap, ...]:
    found = (device_plugin_config_map(env), mig_parted_config_map(env))
    return tuple(one for one in found if one is not None)


def check_maps(env: Environment, live: Iterable[ConfigMap]) -> Iterator[Finding]:
    """Differences, without the values, which span lines; the key says where to look."""
    there = {_place(one): one.get("data") or {} for one in live}
    for wanted in planned(env):
        resource, data = f"ConfigMap {_place(wanted)}", wanted["data"]
        has = there.get(_place(wanted))
        if has is None:
            yield Finding(resource, "", "missing", "cluster", "a ConfigMap", "none")
            continue
        for key in sorted({*data, *has}):
            if key not in has:
                yield Finding(resource, at("data", key), "missing", "cluster")
            elif key not in data:
                yield Finding(resource, at("data", key), "added", "cluster")
            elif data[key] != has[key]:
                yield Finding(resource, at("data", key), "changed", "cluster")


def _place(one: ConfigMap) -> str:
    return f"{one['metadata']['namespace']}/{one['metadata']['name']}"
