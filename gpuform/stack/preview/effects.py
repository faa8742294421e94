"""From the engine's steps to the effects on nodes and pods: the blast radius of a change.

One function for each type of resource that can affect a node: here for those of every kind of cluster. Types
that neither this table nor that of a cloud has affect no node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuform.engine import Message, Step
from gpuform.stack.preview.effect import (
    DRAINED,
    ONE_BY_ONE,
    Effect,
    Found,
    PreviewRules,
    Rule,
    Weight,
    after,
    before,
    changed,
    ended,
    losing,
)
from gpuform.stack.preview.world import World
from infra.model import labels
from infra.model.losses import GUARD, VERDICTS

_PLUGIN_ALONE = ("nvidia-device-plugin", "device-plugin-sim")
_MIG_LAYOUT = "gpuform:nodes:MigLayout"
_NO_OFFER = "a node offers no GPUs for a moment, running pods stay"


def effects(steps: Iterable[Step], world: World, clouds: Sequence[PreviewRules] = ()) -> tuple[Effect, ...]:
    """Every effect, the worst first; independent of the order of the steps.

    ``clouds`` know the effects of their own types of resources.
    """
    listed = list(steps)
    clusters = {one.cluster for one in clouds}
    gone = any(one.type in clusters and one.op in ("replace", "delete") for one in listed)
    rules = {**_RULES, **{type_: rule for one in clouds for type_, rule in one.effects.items()}}
    found = [
        effect
        for step in listed
        if _acts(step) and step.type in rules and not (gone and _in_another_cluster(step))
        for effect in rules[step.type](step, world)
    ]
    found += [effect for one in clouds for effect in one.combined(listed)]
    return tuple(sorted(dict.fromkeys(found), key=lambda one: (one.weight, one.what, one.how)))


def _acts(step: Step) -> bool:
    first_layout = step.op == "create" and step.type == _MIG_LAYOUT
    return first_layout or step.op not in ("create", "same", "create-replacement", "delete-replaced", "read")


def _in_another_cluster(step: Step) -> bool:
    """Whether an object is replaced only because its cluster is, so that reporting the cluster suffices."""
    replaced = step.change is not None and step.change.replaces == ("provider",)
    return replaced and step.type.startswith("kubernetes:")


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


def _node(step: Step, world: World) -> Found:
    name = str(before(step, "metadata", "name"))
    pool = str(before(step, "metadata", "labels", labels.POOL) or "")
    if step.op in ("delete", "replace"):
        gone = world.on(pool, nodes=[name])
        yield Effect(Weight.EVICTION, f"node {name}", ended(step), (name,), gone)
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


_OF_PODS = ("spec.template", "spec.predictor")
_BESIDE_PODS = tuple(f"spec.predictor.{key}" for key in ("deploymentStrategy", "maxReplicas", "minReplicas"))


def _workload(step: Step, world: World) -> Found:
    """The pods of an InferenceService are those of a Deployment, in the declared world of its own name."""
    kind = step.type.rsplit(":", 1)[-1]
    served = kind == "InferenceService"
    owner, ends = ("Deployment", ("", "-predictor")) if served else (kind, ("",))
    paths = step.change.paths if step.change else ()
    rolled = any(one.startswith(_OF_PODS) and not one.startswith(_BESIDE_PODS) for one in paths)
    metadata, how = before(step, "metadata"), "is rolled out again" if rolled else ""
    return _restart(step, world, kind, metadata, owner, ends, how)


def _blue_green(step: Step, world: World) -> Found:
    """Both colours count as the Deployment's pods; the declared world has the name without a colour."""
    how = "switches to its other colour a few pods at a time, and back if those do not become ready"
    metadata, rolled = before(step, "deployment", "metadata"), changed(step, "deployment.spec.template")
    ends = ("", "-blue", "-green")
    return _restart(step, world, "Deployment", metadata, "Deployment", ends, how if rolled else "")


def _restart(
    step: Step, world: World, kind: str, metadata: Any, owner: str, ends: tuple[str, ...], rolled: str
) -> Found:
    """A workload that ends, or is ``rolled`` out, with the pods of owners of its name and these ends."""
    namespace, name = (metadata or {}).get("namespace", "default"), (metadata or {}).get("name", step.name)
    owners = {f"{owner}/{name}{end}" for end in ends}
    pods = (pod for pod in world.pods if pod.namespace == namespace)
    own = tuple(pod for pod in pods if (pod.owner or f"Pod/{pod.name}") in owners)
    if how := ended(step) if step.op in ("delete", "replace") else rolled:
        yield Effect(Weight.RESTART, f"{kind} {namespace}/{name}", how, evicts=own)


_RULES: Mapping[str, Rule] = {
    "kubernetes:core/v1:Namespace": losing("namespace", "metadata", "name"),
    "kubernetes:core/v1:PersistentVolumeClaim": losing("volume claim", "metadata", "name"),
    "kubernetes:core/v1:PersistentVolume": losing("volume", "metadata", "name"),
    "kubernetes:core/v1:Node": _node,
    "gpuform:nodes:PoolNodes": _pool_nodes,
    _MIG_LAYOUT: _mig,
    "kubernetes:helm.sh/v3:Release": _release,
    "kubernetes:core/v1:Pod": _workload,
    "kubernetes:apps/v1:Deployment": _workload,
    "kubernetes:apps/v1:StatefulSet": _workload,
    "kubernetes:batch/v1:Job": _workload,
    "kubernetes:serving.kserve.io/v1beta1:InferenceService": _workload,
    "gpuform:workloads:BlueGreen": _blue_green,
}
