"""Compares live nodes and the operands' configuration with the plan.

Of nodes: labels, taints, MIG layout, driver, and allocatable GPUs. Of ConfigMaps: each key, since the engine
sees only the keys that it has written, but the operands also read keys that others added.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from gpuform.checkout.listing import key_path
from gpuform.stack.drift.rules import TAINTS, DriftRules, Finding
from infra.model.base import labels
from infra.model.base.quantities import whole_number
from infra.model.environment import Environment
from infra.model.pool.allocatable import node_gpus, resources
from infra.model.pool.pool import Pool
from infra.plan.gpu_operator import driver_version
from infra.plan.nodes import simulated_nodes
from infra.plan.sharing import (
    device_plugin_config_map,
    mig_config_name,
    mig_parted_config_map,
    pool_labels,
    pool_taints,
)

Node = Mapping[str, Any]

_MIG_DONE = "success"  # the MIG manager's state of an applied layout


def check_nodes(env: Environment, rules: DriftRules, nodes: Iterable[Node]) -> Iterator[Finding]:
    """Differences, pool by pool. Nodes without a pool of ours are ignored."""
    all_nodes = list(nodes)
    for pool in env.pools:
        names = [str(node["metadata"]["name"]) for node in simulated_nodes(env, pool)]
        selector = (pool.selector or rules.selector(env, pool)).items()
        members = [
            node
            for node in all_nodes
            if (node["metadata"]["name"] in names if names else selector <= _labels(node).items())
        ]
        if not pool.by_karpenter:  # else the number follows the workload
            yield from _check_count(pool, names, members)
        for node in members:
            yield from _check_node(env, pool, node)


def out_of_use(env: Environment, nodes: Iterable[Node]) -> Iterator[str]:
    """Names of this environment's nodes with the taint of the health loop."""
    for node in nodes:
        if _is_out_of_use(node) and _labels(node).get(labels.ENVIRONMENT, env.name) == env.name:
            yield str(node["metadata"]["name"])


def _is_out_of_use(node: Node) -> bool:
    return any(taint["key"] == labels.GPU_UNHEALTHY for taint in _taints(node))


def _labels(node: Node) -> Mapping[str, str]:
    node_labels: Mapping[str, str] = node["metadata"].get("labels") or {}
    return node_labels


def _check_count(pool: Pool, names: Sequence[str], members: Sequence[Node]) -> Iterator[Finding]:
    if pool.selector and not members:
        wanted = "a node that its selector matches"
        yield Finding(f"pool {pool.name}", "", "missing", "cluster", wanted, "none")
    existing, count = {str(node["metadata"]["name"]) for node in members}, len(members)
    for name in names:
        if name not in existing:
            yield Finding(f"Node {name}", "", "missing", "cluster", f"a node of pool {pool.name}", "none")
    declared = pool.nodes is not None or pool.elastic
    if names or not declared or pool.min_nodes <= count <= pool.max_nodes:
        return
    wanted = f"{pool.min_nodes} to {pool.max_nodes}" if pool.bounds else str(pool.min_nodes)
    how: Literal["missing", "added"] = "missing" if count < pool.min_nodes else "added"
    yield Finding(f"pool {pool.name}", "nodes", how, "cluster", wanted, str(count))


def _check_node(env: Environment, pool: Pool, node: Node) -> Iterator[Finding]:
    name = f"Node {node['metadata']['name']}"
    tainted = {(taint["key"], taint["effect"]): taint.get("value", "") for taint in _taints(node)}
    if any(key == labels.GPU_NOT_READY for key, _ in tainted):
        return  # not ready yet: the readiness gate watches it
    live_labels = _labels(node)
    for key, value in (*pool_labels(env, pool).items(), *_operand_labels(env, pool).items()):
        yield from _compare(name, key_path("metadata.labels", key), value, live_labels.get(key, ""))
    taints = pool_taints(env, pool)
    for taint in taints:
        path = f"{TAINTS}[{taint['key']}:{taint['effect']}]"
        missing = (taint["key"], taint["effect"]) not in tainted
        live = "none" if missing else tainted[taint["key"], taint["effect"]]
        if missing or live != taint["value"]:
            yield Finding(name, path, "missing" if missing else "changed", "cluster", taint["value"], live)
    if env.is_simulated:  # other nodes get taints from the cloud, autoscalers and Kubernetes
        declared = {(taint["key"], taint["effect"]) for taint in taints}
        for key, effect in sorted(tainted.keys() - declared):
            if not key.startswith((labels.NODE_STATE, labels.GPU_UNHEALTHY)):
                value = tainted[key, effect] or "no value"
                yield Finding(name, f"{TAINTS}[{key}:{effect}]", "added", "cluster", "none", value)
    if _is_out_of_use(node):
        return  # it may lack the broken GPU
    gpus = node_gpus(pool, live_labels)
    if gpus in pool.gpu_counts:
        yield from _check_gpus(name, resources(pool, gpus), node.get("status", {}).get("allocatable", {}))
    else:
        key = labels.INSTANCE_GPU_COUNT if pool.elastic else labels.GPU_COUNT
        wanted = " or ".join(map(str, pool.gpu_counts))
        yield from _compare(name, key_path("metadata.labels", key), wanted, live_labels.get(key, ""))


def _operand_labels(env: Environment, pool: Pool) -> dict[str, str]:
    """Labels with the configuration given to NVIDIA's operands, and their report that it is applied."""
    wanted = {}
    config = mig_config_name(pool)
    if config is not None and env.has_mig_manager:
        wanted = {labels.MIG_CONFIG: config, labels.MIG_CONFIG_STATE: _MIG_DONE}
    if pool.gpus and env.ownership.driver == "operator":  # elsewhere the driver comes with the pinned image
        wanted[labels.DRIVER_VERSION] = driver_version(env)
    return wanted


def _check_gpus(name: str, planned: Mapping[str, int], allocatable: Mapping[str, Any]) -> Iterator[Finding]:
    live = {
        key: whole_number(count) for key, count in allocatable.items() if key.startswith(labels.NVIDIA_PREFIX)
    }
    for key in sorted({*planned, *live}):
        if planned.get(key, 0) != live.get(key, 0):
            wanted, actual = str(planned.get(key, 0)), str(live.get(key, 0))
            yield Finding(name, key_path("status.allocatable", key), "changed", "cluster", wanted, actual)


def _compare(name: str, path: str, wanted: str, actual: str) -> Iterator[Finding]:
    if actual != wanted:
        yield Finding(name, path, "changed" if actual else "missing", "cluster", wanted, actual or "none")


def _taints(node: Node) -> Sequence[Mapping[str, str]]:
    taints: Sequence[Mapping[str, str]] = node.get("spec", {}).get("taints") or ()
    return taints


ConfigMap = Mapping[str, Any]


def planned_config_maps(env: Environment) -> tuple[ConfigMap, ...]:
    config_maps = (device_plugin_config_map(env), mig_parted_config_map(env))
    return tuple(item for item in config_maps if item is not None)


def check_maps(env: Environment, live: Iterable[ConfigMap]) -> Iterator[Finding]:
    """Differences, without the values, which span lines; the key says where to look."""
    live_data = {_name_of(item): item.get("data") or {} for item in live}
    for wanted in planned_config_maps(env):
        resource, data = f"ConfigMap {_name_of(wanted)}", wanted["data"]
        actual = live_data.get(_name_of(wanted))
        if actual is None:
            yield Finding(resource, "", "missing", "cluster", "a ConfigMap", "none")
            continue
        for key in sorted({*data, *actual}):
            if key not in actual:
                yield Finding(resource, key_path("data", key), "missing", "cluster")
            elif key not in data:
                yield Finding(resource, key_path("data", key), "added", "cluster")
            elif data[key] != actual[key]:
                yield Finding(resource, key_path("data", key), "changed", "cluster")


def _name_of(item: ConfigMap) -> str:
    return f"{item['metadata']['namespace']}/{item['metadata']['name']}"
