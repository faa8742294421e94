"""From the engine's steps to the effects on nodes and pods: the blast radius of a change.

One function for each type of resource that can affect a node: here for those of every kind of cluster. Types
that neither this table nor that of a cloud has affect no node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuform.engine import Message, Step
from gpuform.engine.events import SIMULATED_NODES
from gpuform.stack.preview.driver import driver_effects
from gpuform.stack.preview.effect import (
    DRAINED,
    ONE_BY_ONE,
    Effect,
    Effects,
    PreviewRules,
    Rule,
    Weight,
    after,
    before,
    describe_end,
    differs,
    loss_rule,
)
from gpuform.stack.preview.snapshot import Snapshot
from infra.model.base import labels
from infra.model.base.guard_names import GUARD, VERDICTS

_PLUGIN_ALONE = ("nvidia-device-plugin", "device-plugin-sim")
_NAMESPACE = "kubernetes:core/v1:Namespace"
_MIG_LAYOUT = "gpuform:nodes:MigLayout"
_PROFILE = re.compile(r"(?:([0-9]+)x)?([0-9]+g\.[0-9]+gb[.a-z]*)")
_RELABELLED = re.compile(r"(labels|taints|nodes.*\.metadata\.labels|nodes.*\.spec\.taints)\b")
_NO_OFFER = "a node offers no GPUs for a moment, running pods stay"


def find_effects(
    steps: Iterable[Step], snapshot: Snapshot, clouds: Sequence[PreviewRules] = ()
) -> tuple[Effect, ...]:
    """Every effect, the worst first; independent of the order of the steps.

    ``clouds`` know the effects of their own types of resources.
    """
    all_steps = list(steps)
    clusters = {cloud.cluster for cloud in clouds}
    cluster_is_lost = any(step.type in clusters and step.op in ("replace", "delete") for step in all_steps)
    rules = {**_RULES, **{type_: rule for cloud in clouds for type_, rule in cloud.effects.items()}}
    if not snapshot.live and any(
        step.type == GUARD for step in all_steps
    ):  # what others have there is not known
        rules[_NAMESPACE] = loss_rule("namespace", "metadata", "name")
    effects = [
        effect
        for step in all_steps
        if _has_effect(step) and step.type in rules and not (cluster_is_lost and _in_another_cluster(step))
        for effect in rules[step.type](step, snapshot)
    ]
    effects += [effect for cloud in clouds for effect in cloud.combined(all_steps)]
    return tuple(sorted(dict.fromkeys(effects), key=lambda effect: (effect.weight, effect.what, effect.how)))


def _has_effect(step: Step) -> bool:
    first_layout = step.op == "create" and step.type == _MIG_LAYOUT
    return first_layout or step.op not in ("create", "same", "create-replacement", "delete-replaced", "read")


def _in_another_cluster(step: Step) -> bool:
    """Whether an object is replaced only because its cluster is, so that reporting the cluster suffices."""
    replaced = step.change is not None and step.change.replaces == ("provider",)
    return replaced and step.type.startswith("kubernetes:")


def guard_notes(
    messages: Iterable[Message], effects: Iterable[Effect]
) -> tuple[tuple[Effect, ...], tuple[str, ...]]:
    """Losses that guards have reported and steps do not show, and the guards' other warnings."""
    known = {effect.what for effect in effects if effect.weight is Weight.LOSS}
    texts = [item.text for item in messages if item.severity == "warning" and f"::{GUARD}::" in item.urn]
    losses, others = [], []
    for text in dict.fromkeys(texts):
        fact, _, verdict = text.rpartition("; ")
        if verdict not in VERDICTS:
            others.append(text)
        elif (subject := " ".join(fact.split(" ", 2)[:2])) not in known:
            losses.append(Effect(Weight.LOSS, subject, fact.removeprefix(f"{subject} ")))
    return tuple(losses), tuple(others)


def _simulated_nodes_effects(step: Step, snapshot: Snapshot) -> Effects:
    pool = str(before(step, "labels", labels.POOL))
    for name in sorted({*before(step, "nodes")} - {*(after(step, "nodes") or ())}):
        evicted = snapshot.pods_on(pool, nodes=[name])
        yield Effect(Weight.EVICTION, f"node {name}", "is deleted", (name,), evicted)
    if step.op == "update" and step.change and any(map(_RELABELLED.match, step.change.paths)):
        yield Effect(Weight.NOTICE, f"pool {pool}", "labels or taints change; running pods stay")


def _pool_nodes_effects(step: Step, snapshot: Snapshot) -> Effects:
    pool = str(before(step, "labels", labels.POOL) or step.name)
    if step.op == "delete":
        yield Effect(Weight.NOTICE, f"pool {pool}", "nodes lose its labels and taints; running pods stay")
    elif differs(step, "labels", "taints", "selector"):
        added = [taint["key"] for taint in after(step, "taints") or () if taint.get("effect") == "NoExecute"]
        old = [taint["key"] for taint in before(step, "taints") or () if taint.get("effect") == "NoExecute"]
        if new := [key for key in added if key not in old]:
            how = f"taint {', '.join(new)} evicts pods that do not tolerate it, on all nodes at once"
            yield Effect(
                Weight.EVICTION, f"pool {pool}", how, snapshot.nodes.get(pool, ()), snapshot.pods_on(pool)
            )
        else:
            yield Effect(Weight.NOTICE, f"pool {pool}", "labels or taints change; running pods stay")
    if step.op != "delete" and after(step, "startup") and not before(step, "startup"):
        how = "nodes that are not proven take no new pods until the readiness gate admits them"
        yield Effect(Weight.NOTICE, f"pool {pool}", how, snapshot.nodes.get(pool, ()))


def _mig_effects(step: Step, snapshot: Snapshot) -> Effects:
    wanted, current = after(step, "config"), before(step, "config")
    layout = before(step, "layout")
    is_new_layout = wanted == current and layout and after(step, "layout") not in (None, layout)
    if step.op == "delete" or (wanted == current and not is_new_layout):
        return
    pool = _pool_of(str(after(step, "selector") or ""))
    pods, nodes = snapshot.pods_on(pool, gpu_only=True), snapshot.nodes.get(pool, ())
    if step.op == "create" and not nodes:
        how = f"nodes get their MIG layout ({_layout_text(wanted)}) as they join, before they take pods"
        yield Effect(Weight.NOTICE, f"pool {pool}", how)
        return
    target = "another layout of that name" if is_new_layout else _layout_text(wanted)
    change = f"the MIG layout changes from {_layout_text(current or 'all-disabled')} to {target}"
    if after(step, "inUse") == "refuse":
        consequence = f"refused, pods that use the GPUs: {len(pods)}" if pods else "no pod uses the GPUs"
        yield Effect(Weight.NOTICE, f"pool {pool}", f"{change}: {consequence}", nodes)
        return
    limit = after(step, "maxUnavailable")
    share = f"{limit} of the nodes" if isinstance(limit, str) else f"{int(limit or 1)} nodes"
    order = ONE_BY_ONE if limit in (None, 1) else f"up to {share} at a time, {DRAINED}"
    yield Effect(Weight.EVICTION, f"pool {pool}", f"{change}: {order}", nodes, pods)


def _layout_text(name: str) -> str:
    """``1x 3g.20gb + 2x 2g.10gb`` of the name that `layouts.config_name` makes; any other name as it is."""
    every = name.removeprefix("all-")
    parts = [_PROFILE.fullmatch(part) for part in every.split("-")]
    counts = [f"{part[1] or '1'}x {part[2]}" for part in parts if part]
    if len(counts) < len(parts):
        return "whole GPUs" if name == "all-disabled" else name
    return " + ".join(counts) if every == name else f"as many {every} as fit"


def _pool_of(selector: str) -> str:
    wanted = dict(part.split("=", 1) for part in selector.split(",") if "=" in part)
    return wanted.get(labels.POOL, selector)


def _release_effects(step: Step, snapshot: Snapshot) -> Effects:
    chart, other = (str(value_of(step, "chart") or "").rsplit("/", 1)[-1] for value_of in (before, after))
    if chart and other and chart != other:
        how = f"is uninstalled before {other} is installed: {_NO_OFFER}"
        yield Effect(Weight.NOTICE, f"chart {chart}", how)
        return
    if differs(step, "version"):
        versions = f"{before(step, 'version')} to {after(step, 'version')}"
        yield Effect(
            Weight.NOTICE,
            f"chart {chart}",
            f"{versions}; Helm does not upgrade CRDs, the chart has its own way",
        )
    if chart in _PLUGIN_ALONE and differs(step, "version", "values"):
        yield Effect(Weight.NOTICE, "device plugin", f"restarts: {_NO_OFFER}")
    if not chart.startswith("gpu-operator"):
        return
    effects = [*driver_effects(step, snapshot)]
    yield from effects
    is_kept = not any(effect.evicts for effect in effects)
    if is_kept and differs(step, "values.devicePlugin", "values.daemonsets"):
        restarted = ("GPU operator components", "restart")
        component, verb = restarted if differs(step, "values.daemonsets") else ("device plugin", "restarts")
        yield Effect(Weight.NOTICE, component, f"{verb}: {_NO_OFFER}")


def _namespace_effects(step: Step, snapshot: Snapshot) -> Effects:
    """No loss as such: the guard reports one if a namespace holds what the stack did not create."""
    if step.op in ("delete", "replace"):
        name = before(step, "metadata", "name") or step.name
        pods = tuple(pod for pod in snapshot.pods if pod.namespace == name)
        yield Effect(
            Weight.RESTART, f"namespace {name}", f"{describe_end(step)}, with all pods in it", (), pods
        )


_POD_FIELDS = ("spec.template", "spec.predictor")
_SCALING = tuple(f"spec.predictor.{key}" for key in ("deploymentStrategy", "maxReplicas", "minReplicas"))


def _workload_effects(step: Step, snapshot: Snapshot) -> Effects:
    """The pods of an InferenceService are those of a Deployment, in the declared snapshot of its own name."""
    kind = step.type.rsplit(":", 1)[-1]
    is_served = kind == "InferenceService"
    owner, ends = ("Deployment", ("", "-predictor")) if is_served else (kind, ("",))
    paths = step.change.paths if step.change else ()
    rolled = any(path.startswith(_POD_FIELDS) and not path.startswith(_SCALING) for path in paths)
    metadata, how = before(step, "metadata"), "is rolled out again" if rolled else ""
    return _restart_effects(step, snapshot, kind, metadata, owner, ends, how)


def _blue_green_effects(step: Step, snapshot: Snapshot) -> Effects:
    """Both colours count as the Deployment's pods; the declared snapshot has the name without a colour."""
    how = "switches to its other colour a few pods at a time, and back if those do not become ready"
    metadata, rolled = before(step, "deployment", "metadata"), differs(step, "deployment.spec.template")
    ends = ("", "-blue", "-green")
    return _restart_effects(step, snapshot, "Deployment", metadata, "Deployment", ends, how if rolled else "")


def _restart_effects(
    step: Step, snapshot: Snapshot, kind: str, metadata: Any, owner: str, ends: tuple[str, ...], rolled: str
) -> Effects:
    """A workload that ends, or is ``rolled`` out, with the pods of owners of its name and these ends."""
    namespace, name = (metadata or {}).get("namespace", "default"), (metadata or {}).get("name", step.name)
    owners = {f"{owner}/{name}{end}" for end in ends}
    pods = (pod for pod in snapshot.pods if pod.namespace == namespace)
    own_pods = tuple(pod for pod in pods if (pod.owner or f"Pod/{pod.name}") in owners)
    if step.op == "replace":  # also a pod without an owner is made again
        own_pods = tuple(replace(pod, owner=pod.owner or f"Pod/{pod.name}") for pod in own_pods)
    if how := describe_end(step) if step.op in ("delete", "replace") else rolled:
        yield Effect(Weight.RESTART, f"{kind} {namespace}/{name}", how, evicts=own_pods)


_RULES: Mapping[str, Rule] = {
    _NAMESPACE: _namespace_effects,
    "kubernetes:core/v1:PersistentVolumeClaim": loss_rule("volume claim", "metadata", "name"),
    "kubernetes:core/v1:PersistentVolume": loss_rule("volume", "metadata", "name"),
    SIMULATED_NODES: _simulated_nodes_effects,
    "gpuform:nodes:PoolNodes": _pool_nodes_effects,
    _MIG_LAYOUT: _mig_effects,
    "kubernetes:helm.sh/v3:Release": _release_effects,
    "kubernetes:core/v1:Pod": _workload_effects,
    "kubernetes:apps/v1:Deployment": _workload_effects,
    "kubernetes:apps/v1:StatefulSet": _workload_effects,
    "kubernetes:batch/v1:Job": _workload_effects,
    "kubernetes:serving.kserve.io/v1beta1:InferenceService": _workload_effects,
    "gpuform:workloads:BlueGreen": _blue_green_effects,
}
