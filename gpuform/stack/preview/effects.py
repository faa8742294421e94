"""From the engine's steps to the effects on nodes and pods: the blast radius of a change.

One function for each type of resource that can affect a node. Types that are not in the table affect no node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpuform.engine import Message, Step
from gpuform.stack.preview import aws_effects, magnum_effects
from gpuform.stack.preview.effect import (
    DRAINED,
    ONE_BY_ONE,
    Effect,
    Found,
    Weight,
    after,
    before,
    changed,
    paths_of,
)
from gpuform.stack.preview.world import World
from infra.model import labels
from infra.model.losses import GUARD, VERDICTS

_PLUGIN_ALONE = ("nvidia-device-plugin", "device-plugin-sim")
_NO_OFFER = "a node offers no GPUs for a moment, running pods stay"
_CLUSTERS = (aws_effects.CLUSTER, magnum_effects.CLUSTER)
_PRECIOUS: Mapping[str, str] = {
    aws_effects.CLUSTER: "cluster",
    aws_effects.VPC: "VPC",
    aws_effects.SUBNET: "subnet",
    aws_effects.KEY: "encryption key",
    magnum_effects.CLUSTER: "cluster",
    "kubernetes:core/v1:Namespace": "namespace",
    "kubernetes:core/v1:PersistentVolumeClaim": "volume claim",
    "kubernetes:core/v1:PersistentVolume": "volume",
}


def effects(steps: Iterable[Step], world: World) -> tuple[Effect, ...]:
    """Every effect, the worst first; independent of the order of the steps."""
    listed = list(steps)
    told = [step for step in listed if not _goes_with_its_cluster(step, listed)]
    found = [effect for step in told for effect in _of(step, world)]
    found += aws_effects.stranded(listed)
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (one.weight, one.what, one.how)))


def _goes_with_its_cluster(step: Step, steps: Iterable[Step]) -> bool:
    """Whether an object is replaced only because of its cluster, so that reporting the cluster suffices."""
    replaced = step.change is not None and step.change.replaces == ("provider",)
    if not replaced or not step.type.startswith("kubernetes:"):
        return False
    return any(one.type in _CLUSTERS and one.op in ("replace", "delete") for one in steps)


def _of(step: Step, world: World) -> Found:
    if step.op in ("create", "same", "create-replacement", "delete-replaced", "read"):
        if step.op == "create" and step.type == "gpuform:nodes:MigLayout":
            yield from _mig(step, world)
        return
    if step.type in _PRECIOUS and step.op in ("replace", "delete"):
        yield from _lost(step, world)
    rule = _RULES.get(step.type)
    if rule:
        yield from rule(step, world)


def told(messages: Iterable[Message], found: Iterable[Effect]) -> tuple[tuple[Effect, ...], tuple[str, ...]]:
    """Losses that guards have reported and steps do not show, and the guards' other warnings."""
    known = {one.what for one in found if one.weight is Weight.LOSS}
    texts = [one.text for one in messages if one.severity == "warning" and f"::{GUARD}::" in one.urn]
    losses, others = [], []
    for text in dict.fromkeys(texts):
        fact, _, verdict = text.rpartition("; ")
        if verdict not in VERDICTS:
            others.append(text)
        elif (what := " ".join(fact.split(" ", 2)[:2])) not in known:
            losses.append(Effect(Weight.LOSS, what, fact.removeprefix(f"{what} ")))
    return tuple(losses), tuple(others)


def _lost(step: Step, world: World) -> Found:
    if aws_effects.goes_with_its_vpc(step):
        return
    kind = _PRECIOUS[step.type]
    why = magnum_effects.reason(step) if step.type == magnum_effects.CLUSTER else paths_of(step)
    end = "is deleted" if step.op == "delete" else f"is replaced ({why})"
    all_of_it = kind in ("cluster", "VPC")  # a stack has one of each, and every node is in both
    nodes = tuple(sorted(name for names in world.nodes.values() for name in names)) if all_of_it else ()
    pods = world.pods if all_of_it else ()
    yield Effect(Weight.LOSS, f"{kind} {_named(step)}", f"{end}, with everything in it", nodes, pods)


def _named(step: Step) -> str:
    """The name that acknowledges the loss: a cluster's also that of its VPC and key."""
    if step.type in _CLUSTERS:
        return str(before(step, "name") or step.name)
    if step.type == aws_effects.VPC:
        return str(before(step, "tags", "Name") or step.name)
    if step.type == aws_effects.KEY:
        return step.name.removesuffix("-secrets")
    return str(before(step, "metadata", "name") or step.name)


def _node(step: Step, world: World) -> Found:
    name = str(before(step, "metadata", "name"))
    pool = str(before(step, "metadata", "labels", labels.POOL) or "")
    if step.op in ("delete", "replace"):
        gone = world.on(pool, nodes=[name])
        how = "is deleted" if step.op == "delete" else f"is replaced ({paths_of(step)})"
        yield Effect(Weight.EVICTION, f"node {name}", how, (name,), gone)
    elif changed(step, "metadata.labels", "spec.taints"):
        yield Effect(Weight.NOTICE, f"pool {pool}", "labels or taints change; running pods stay")


def _pool_nodes(step: Step, world: World) -> Found:
    pool = str(before(step, "labels", labels.POOL) or step.name)
    if step.op == "delete":
        yield Effect(Weight.NOTICE, f"pool {pool}", "nodes lose its labels and taints; running pods stay")
    elif changed(step, "labels", "taints", "selector"):
        added = [taint["key"] for taint in after(step, "taints") or () if taint.get("effect") == "NoExecute"]
        old = [taint["key"] for taint in before(step, "taints") or () if taint.get("effect") == "NoExecute"]
        if new := [key for key in added if key not in old]:
            how = f"taint {', '.join(new)} evicts pods that do not tolerate it, on all nodes at once"
            yield Effect(Weight.EVICTION, f"pool {pool}", how, world.nodes.get(pool, ()), world.on(pool))
        else:
            yield Effect(Weight.NOTICE, f"pool {pool}", "labels or taints change; running pods stay")
    if step.op != "delete" and after(step, "startup") and not before(step, "startup"):
        how = "nodes that are not proven take no new pods until the readiness gate admits them"
        yield Effect(Weight.NOTICE, f"pool {pool}", how, world.nodes.get(pool, ()))


def _mig(step: Step, world: World) -> Found:
    wanted, had = after(step, "config"), before(step, "config")
    stood_for = before(step, "layout")
    renewed = wanted == had and stood_for and after(step, "layout") not in (None, stood_for)
    if step.op == "delete" or (wanted == had and not renewed):
        return
    pool = _pool_of(str(after(step, "selector") or ""))
    users, nodes = world.on(pool, gpu_only=True), world.nodes.get(pool, ())
    if step.op == "create" and not nodes:
        how = f"nodes get the MIG layout {wanted} as they join, before they take pods"
        yield Effect(Weight.NOTICE, f"pool {pool}", how)
        return
    to = "another layout of that name" if renewed else wanted
    what = f"the MIG layout changes from {had or 'whole GPUs'} to {to}"
    if after(step, "inUse") == "refuse":
        held = f"refused, pods that use the GPUs: {len(users)}" if users else "no pod uses the GPUs"
        yield Effect(Weight.NOTICE, f"pool {pool}", f"{what}: {held}", nodes)
        return
    most = after(step, "maxUnavailable")
    several = f"{most} of the nodes" if isinstance(most, str) else f"{int(most or 1)} nodes"
    order = ONE_BY_ONE if most in (None, 1) else f"up to {several} at a time, {DRAINED}"
    yield Effect(Weight.EVICTION, f"pool {pool}", f"{what}: {order}", nodes, users)


def _pool_of(selector: str) -> str:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if "=" in part)
    return wanted.get(labels.POOL, selector)


def _release(step: Step, world: World) -> Found:
    chart, other = (str(side(step, "chart") or "").rsplit("/", 1)[-1] for side in (before, after))
    if chart and other and chart != other:
        how = f"is uninstalled before {other} is installed: {_NO_OFFER}"
        yield Effect(Weight.NOTICE, f"chart {chart}", how)
        return
    if changed(step, "version"):
        versions = f"{before(step, 'version')} to {after(step, 'version')}"
        yield Effect(
            Weight.NOTICE,
            f"chart {chart}",
            f"{versions}; Helm does not upgrade CRDs, the chart has its own way",
        )
    if chart in _PLUGIN_ALONE and changed(step, "version", "values"):
        yield Effect(Weight.NOTICE, "device plugin", f"restarts: {_NO_OFFER}")
    if not chart.startswith("gpu-operator"):
        return
    if _replaces_driver(step):
        yield from _driver(step, world)
    elif changed(step, "values.devicePlugin", "values.daemonsets"):
        what = "operands" if changed(step, "values.daemonsets") else "device plugin"
        yield Effect(Weight.NOTICE, what, f"restart{'s' * (what != 'operands')}: {_NO_OFFER}")


def _replaces_driver(step: Step) -> bool:
    """Its upgrade policy changes no driver; neither does naming the kernel modules that were the default."""
    driver = ("values", "driver", "kernelModuleType")
    modules = (before(step, *driver) or "auto") != (after(step, *driver) or "auto")
    replaced = modules or changed(step, "version", "values.driver.version", "values.driver.enabled")
    return replaced and after(step, "values", "driver", "enabled") is not False


def _driver(step: Step, world: World) -> Found:
    policy = after(step, "values", "driver", "upgradePolicy") or {}
    if policy.get("autoUpgrade") is False:
        how = "the new driver is loaded on a node once its driver pod is deleted"
        yield Effect(Weight.NOTICE, "driver", how)
        return
    most = policy.get("maxParallelUpgrades", 1)
    order = ONE_BY_ONE if most == 1 else f"up to {int(most)} nodes at a time, {DRAINED}"
    for pool, nodes in sorted(world.nodes.items()):
        if evicted := world.on(pool, gpu_only=True):
            yield Effect(Weight.EVICTION, f"pool {pool}", f"the driver is replaced: {order}", nodes, evicted)


def _hosts(step: Step, world: World) -> Found:
    """Hosts with a changed driver; the inventory is JSON text, with every host's variables in ``_meta``."""
    had, has = (_drivers(side(step, "inventory")) for side in (before, after))
    for host in sorted(had.keys() & has.keys()):
        if had[host] != has[host]:
            pods = tuple(pod for pod in world.pods if pod.node == host)
            how = f"driver {had[host]} to {has[host]}: drained, rebooted and checked, one host after another"
            yield Effect(Weight.EVICTION, f"host {host}", how, (host,), pods)
    if had == has and changed(step, "inventory", "content"):
        yield Effect(
            Weight.NOTICE, "hosts", "Ansible runs again; `gpuform hosts check` shows what it would change"
        )


def _drivers(inventory: Any) -> dict[str, str]:
    try:
        hosts = json.loads(str(inventory))["_meta"]["hostvars"]
    except (ValueError, KeyError, TypeError):
        return {}
    return {name: str(one.get("nvidia_driver_version", "")) for name, one in hosts.items()}


_OF_PODS = ("spec.template", "spec.predictor")
_BESIDE_PODS = tuple(f"spec.predictor.{key}" for key in ("deploymentStrategy", "maxReplicas", "minReplicas"))


def _workload(step: Step, world: World) -> Found:
    """The pods of an InferenceService are those of a Deployment, in the declared world of its own name."""
    metadata = before(step, "metadata") or {}
    namespace, name = metadata.get("namespace", "default"), metadata.get("name", step.name)
    kind = step.type.rsplit(":", 1)[-1]
    served = kind == "InferenceService"
    owners = {f"Deployment/{name}{end}" for end in ("", "-predictor")} if served else {f"{kind}/{name}"}
    own = tuple(
        pod for pod in world.pods if pod.namespace == namespace and (pod.owner or f"Pod/{pod.name}") in owners
    )
    what, paths = f"{kind} {namespace}/{name}", step.change.paths if step.change else ()
    if step.op in ("delete", "replace"):
        how = "is deleted" if step.op == "delete" else f"is replaced ({paths_of(step)})"
        yield Effect(Weight.RESTART, what, how, evicts=own)
    elif any(one.startswith(_OF_PODS) and not one.startswith(_BESIDE_PODS) for one in paths):
        yield Effect(Weight.RESTART, what, "is rolled out again", evicts=own)


def _blue_green(step: Step, world: World) -> Found:
    """Both colours count as the Deployment's pods; the declared world has the name without a colour."""
    metadata = (before(step, "deployment") or {}).get("metadata", {})
    namespace, name = metadata.get("namespace", "default"), metadata.get("name", step.name)
    owners = {f"Deployment/{name}{end}" for end in ("", "-blue", "-green")}
    own = tuple(pod for pod in world.pods if pod.namespace == namespace and pod.owner in owners)
    what = f"Deployment {namespace}/{name}"
    if step.op in ("delete", "replace"):
        how = "is deleted" if step.op == "delete" else f"is replaced ({paths_of(step)})"
        yield Effect(Weight.RESTART, what, how, evicts=own)
    elif changed(step, "deployment.spec.template"):
        how = "switches to its other colour a few pods at a time, and back if those do not become ready"
        yield Effect(Weight.RESTART, what, how, evicts=own)


_RULES: Mapping[str, Callable[[Step, World], Found]] = {
    "kubernetes:core/v1:Node": _node,
    "gpuform:nodes:PoolNodes": _pool_nodes,
    "gpuform:nodes:MigLayout": _mig,
    "kubernetes:helm.sh/v3:Release": _release,
    "aws:eks/nodeGroup:NodeGroup": aws_effects.node_group,
    magnum_effects.CLUSTER: magnum_effects.cluster,
    magnum_effects.NODE_GROUP: magnum_effects.node_group,
    "kubernetes:karpenter.sh/v1:NodePool": aws_effects.elastic,
    "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass": aws_effects.node_class,
    "gpuform:hosts:HostConfiguration": _hosts,
    "kubernetes:core/v1:Pod": _workload,
    "kubernetes:apps/v1:Deployment": _workload,
    "kubernetes:apps/v1:StatefulSet": _workload,
    "kubernetes:batch/v1:Job": _workload,
    "kubernetes:serving.kserve.io/v1beta1:InferenceService": _workload,
    "gpuform:workloads:BlueGreen": _blue_green,
}
