"""From the engine's steps to what happens to nodes and pods: the blast radius of a change.

One function for each type of resource whose change reaches a node. What is not in the table touches no node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from gpuform.engine import Step
from gpuform.preview.world import PodRef, World
from infra.model import labels


class Weight(IntEnum):
    """How bad it is; what comes first in a summary is the lowest."""

    LOSS = 0  # a cluster, or something that holds data, goes
    EVICTION = 1
    RESTART = 2  # what the change is about: workloads of the environment
    NOTICE = 3


@dataclass(frozen=True)
class Effect:
    """One thing that happens: to what, how, in which order, and the pods that end by it."""

    weight: Weight
    what: str
    how: str
    nodes: tuple[str, ...] = ()
    evicts: tuple[PodRef, ...] = ()


_ONE_BY_ONE = "one node after another, each drained within the pods' disruption budgets"
_PRECIOUS: Mapping[str, str] = {
    "aws:eks/cluster:Cluster": "cluster",
    "aws:ec2/vpc:Vpc": "VPC",
    "aws:ec2/subnet:Subnet": "subnet",
    "aws:kms/key:Key": "encryption key",
    "openstack:containerinfra/cluster:Cluster": "cluster",
    "kubernetes:core/v1:Namespace": "namespace",
    "kubernetes:core/v1:PersistentVolumeClaim": "volume claim",
    "kubernetes:core/v1:PersistentVolume": "volume",
}
# Paths of a NodePool's spec that Karpenter acts on without touching nodes that are there.
_NO_DRIFT = ("spec.limits", "spec.disruption", "spec.weight", "spec.replicas", "metadata")
_GROUP_ROLLS = ("version", "releaseVersion", "launchTemplate", "amiType", "instanceTypes")

_Found = Iterator[Effect]


def effects(steps: Iterable[Step], world: World) -> tuple[Effect, ...]:
    """Every effect, the worst first; the same steps in another order give the same answer."""
    found = [effect for step in steps for effect in _of(step, world)]
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (one.weight, one.what, one.how)))


def _of(step: Step, world: World) -> _Found:
    if step.op in ("create", "same", "create-replacement", "delete-replaced", "read"):
        if step.op == "create" and step.type == "gpuform:nodes:MigLayout":
            yield from _mig(step, world)
        return
    if step.type in _PRECIOUS and step.op in ("replace", "delete"):
        what = f"{_PRECIOUS[step.type]} {step.name}"
        end = "is deleted" if step.op == "delete" else f"is replaced ({_paths(step)})"
        pods = world.pods if _PRECIOUS[step.type] == "cluster" else ()
        yield Effect(Weight.LOSS, what, f"{end}, with everything in it", evicts=pods)
    rule = _RULES.get(step.type)
    if rule:
        yield from rule(step, world)


def _paths(step: Step) -> str:
    change = step.change
    return ", ".join((change.replaces or change.paths) if change else ()) or "no reason given"


def _changed(step: Step, *prefixes: str) -> bool:
    return step.change is not None and any(path.startswith(prefixes) for path in step.change.paths)


def _before(step: Step, *path: str) -> Any:
    found: Any = step.change.before if step.change else {}
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _after(step: Step, *path: str) -> Any:
    found: Any = step.change.after if step.change else {}
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _node(step: Step, world: World) -> _Found:
    name = str(_before(step, "metadata", "name"))
    pool = str(_before(step, "metadata", "labels", labels.POOL) or "")
    if step.op in ("delete", "replace"):
        gone = world.on(pool, nodes=[name])
        how = "goes" if step.op == "delete" else f"is replaced ({_paths(step)})"
        yield Effect(Weight.EVICTION, f"node {name}", how, (name,), gone)
    elif _changed(step, "metadata.labels", "spec.taints"):
        yield Effect(Weight.NOTICE, f"pool {pool}", "labels or taints change; running pods stay")


def _pool_nodes(step: Step, world: World) -> _Found:
    pool = str(_before(step, "labels", labels.POOL) or step.name)
    if step.op == "delete":
        yield Effect(Weight.NOTICE, f"pool {pool}", "nodes lose its labels and taints; running pods stay")
    elif _changed(step, "labels", "taints", "selector"):
        added = [taint["key"] for taint in _after(step, "taints") or () if taint.get("effect") == "NoExecute"]
        old = [taint["key"] for taint in _before(step, "taints") or () if taint.get("effect") == "NoExecute"]
        if new := [key for key in added if key not in old]:
            how = f"taint {', '.join(new)} ends pods that do not tolerate it, on all nodes at once"
            yield Effect(Weight.EVICTION, f"pool {pool}", how, world.nodes.get(pool, ()), world.on(pool))
        else:
            yield Effect(Weight.NOTICE, f"pool {pool}", "labels or taints change; running pods stay")


def _mig(step: Step, world: World) -> _Found:
    wanted, had = _after(step, "config"), _before(step, "config")
    if step.op == "delete" or wanted == had:
        return
    pool = _pool_of(str(_after(step, "selector") or ""))
    evicted = world.on(pool, gpu_only=True)
    how = f"GPUs are cut anew, {had or 'whole'} to {wanted}: {_ONE_BY_ONE}"
    yield Effect(Weight.EVICTION, f"pool {pool}", how, world.nodes.get(pool, ()), evicted)


def _pool_of(selector: str) -> str:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if "=" in part)
    return wanted.get(labels.POOL, selector)


def _release(step: Step, world: World) -> _Found:
    chart = str(_before(step, "chart") or "").rsplit("/", 1)[-1]
    if _changed(step, "version"):
        versions = f"{_before(step, 'version')} to {_after(step, 'version')}"
        yield Effect(
            Weight.NOTICE,
            f"chart {chart}",
            f"{versions}; Helm leaves CRDs to the chart's own way of upgrading",
        )
    if not chart.startswith("gpu-operator"):
        return
    driver = _after(step, "values", "driver", "enabled")
    if driver is not False and _changed(step, "version", "values.driver"):
        for pool, nodes in sorted(world.nodes.items()):
            if evicted := world.on(pool, gpu_only=True):
                how = f"the driver is replaced: {_ONE_BY_ONE}"
                yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, evicted)
    elif _changed(step, "values.devicePlugin"):
        yield Effect(
            Weight.NOTICE, "device plugin", "restarts: a node offers nothing for a moment, running pods stay"
        )


def _node_group(step: Step, world: World) -> _Found:
    pool = str(_before(step, "labels", labels.POOL) or step.name)
    nodes = world.nodes.get(pool, ())
    if step.op == "delete":
        yield Effect(Weight.EVICTION, f"pool {pool}", "goes with all its nodes", nodes, world.on(pool))
    elif step.op == "replace":
        how = f"node group is replaced ({_paths(step)}): new nodes first, then the old ones go together"
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, world.on(pool))
    elif _changed(step, *_GROUP_ROLLS):
        yield Effect(
            Weight.EVICTION, f"pool {pool}", f"nodes are replaced: {_at_a_time(step)}", nodes, world.on(pool)
        )
    elif _fewer(step):
        had, has = (int(side(step, "scalingConfig", "desiredSize")) for side in (_before, _after))
        how = f"{had - has} of {had} nodes go; EKS chooses which"
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, world.on(pool))


def _at_a_time(step: Step) -> str:
    most = _after(step, "updateConfig", "maxUnavailable")
    return f"{int(most)} at a time, each drained within the pods' disruption budgets" if most else _ONE_BY_ONE


def _fewer(step: Step) -> bool:
    had, has = (side(step, "scalingConfig", "desiredSize") for side in (_before, _after))
    return isinstance(had, int | float) and isinstance(has, int | float) and has < had


def _elastic(step: Step, world: World) -> _Found:
    pool = str(_before(step, "metadata", "labels", labels.POOL) or step.name)
    nodes = world.nodes.get(pool, ())
    if step.op in ("delete", "replace"):
        how = "NodePool goes, and its nodes with it: drained first"
        yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, world.on(pool))
    elif step.change and any(not path.startswith(_NO_DRIFT) for path in step.change.paths):
        yield _drift(step, world, pool)


def _node_class(step: Step, world: World) -> _Found:
    pool = str(_before(step, "metadata", "labels", labels.POOL) or step.name)
    if step.op == "update" and _changed(step, "spec"):
        yield _drift(step, world, pool)


def _drift(step: Step, world: World, pool: str) -> Effect:
    how = f"nodes drift ({_paths(step)}): Karpenter replaces them within the pool's disruption budgets"
    return Effect(Weight.EVICTION, f"pool {pool}", how, world.nodes.get(pool, ()), world.on(pool))


def _hosts(step: Step, world: World) -> _Found:
    """Hosts whose driver changes; the inventory is JSON text, and every host's variables lie in ``_meta``."""
    had, has = (_drivers(side(step, "inventory")) for side in (_before, _after))
    for host in sorted(had.keys() & has.keys()):
        if had[host] != has[host]:
            pods = tuple(pod for pod in world.pods if pod.node == host)
            how = f"driver {had[host]} to {has[host]}: drained, rebooted and checked, one host after another"
            yield Effect(Weight.EVICTION, f"host {host}", how, (host,), pods)
    if had == has and _changed(step, "inventory", "content"):
        yield Effect(
            Weight.NOTICE, "hosts", "Ansible runs again; `gpuform hosts check` shows what it would change"
        )


def _drivers(inventory: Any) -> dict[str, str]:
    try:
        hosts = json.loads(str(inventory))["_meta"]["hostvars"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: str(one.get("nvidia_driver_version", "")) for name, one in hosts.items()}


def _workload(step: Step, world: World) -> _Found:
    metadata = _before(step, "metadata") or {}
    namespace, name = metadata.get("namespace", "default"), metadata.get("name", step.name)
    kind = step.type.rsplit(":", 1)[-1]
    own = tuple(
        pod
        for pod in world.pods
        if pod.namespace == namespace and (pod.owner or f"Pod/{pod.name}") == f"{kind}/{name}"
    )
    what = f"{kind} {namespace}/{name}"
    if step.op in ("delete", "replace"):
        how = "goes" if step.op == "delete" else f"is replaced ({_paths(step)})"
        yield Effect(Weight.RESTART, what, how, evicts=own)
    elif _changed(step, "spec.template"):
        yield Effect(Weight.RESTART, what, "rolls out anew", evicts=own)


_RULES: Mapping[str, Callable[[Step, World], _Found]] = {
    "kubernetes:core/v1:Node": _node,
    "gpuform:nodes:PoolNodes": _pool_nodes,
    "gpuform:nodes:MigLayout": _mig,
    "kubernetes:helm.sh/v3:Release": _release,
    "aws:eks/nodeGroup:NodeGroup": _node_group,
    "kubernetes:karpenter.sh/v1:NodePool": _elastic,
    "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass": _node_class,
    "gpuform:hosts:HostConfiguration": _hosts,
    "kubernetes:core/v1:Pod": _workload,
    "kubernetes:apps/v1:Deployment": _workload,
    "kubernetes:batch/v1:Job": _workload,
}
