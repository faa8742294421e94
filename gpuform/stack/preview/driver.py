"""Effects of a change of the GPU operator on its driver: order, time, and the pods at which it fails.

A node is cordoned, loses its pods with GPUs (infra/model/placement/driver_upgrade.py: all or none), gets a
new driver pod, is validated and uncordoned [gpu-operator v26.7.0: k8s-operator-libs,
pkg/upgrade/common_manager.go].
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.checkout.listing import abbreviate
from gpuform.engine import Step
from gpuform.stack.preview.effect import Effect, Effects, Weight, after, before, differs
from gpuform.stack.preview.snapshot import PodRef, Snapshot
from infra.model.base.quantities import version_numbers
from infra.model.placement import driver_upgrade

_FIRST_IN_PLACE = (26, 7)
"""From here on a driver pod restarts in place, without an eviction, if its DRIVER_CONFIG_DIGEST stays, of its
images, variables and volumes [internal/predicates/restart_only.go, internal/config/driver_config_digest.go].
The chart sets some, such as the driver manager's image: v0.11.0 in v26.3.3, v0.12.0 in v26.7.0."""
_LIMITS = "loaded (limit: 21 minutes) and validated (limit: 10 minutes)"
"""The driver's startup probe, 60 s + 120 x 10 s [deployments/gpu-operator/values.yaml];
validationTimeoutSeconds [k8s-operator-libs, pkg/upgrade/validation_manager.go]."""
_DELETION_S = 300
"""gpuPodDeletion.timeoutSeconds [deployments/gpu-operator/values.yaml]."""
_DRIVER = tuple(f"values.driver.{key}" for key in ("enabled", "image", "repository", "version"))

_Values = Mapping[str, Any]
_Obstacles = Mapping[PodRef, list[tuple[str, str]]]


def driver_effects(step: Step, snapshot: Snapshot) -> Effects:
    """Its upgrade policy changes no driver; neither does naming the kernel modules that were the default."""
    path = ("values", "driver", "kernelModuleType")
    modules = (before(step, *path) or "auto") != (after(step, *path) or "auto")
    is_replaced, is_upgraded = modules or differs(step, *_DRIVER), differs(step, "version")
    is_owned = after(step, "values", "driver", "enabled") is not False
    if not is_owned or not (is_replaced or is_upgraded or differs(step, "values.daemonsets")):
        return
    policy = after(step, "values", "driver", "upgradePolicy") or {}
    number = _at_a_time(policy, len(snapshot.gpu_nodes))
    order = "one node after another" if number <= 1 else f"up to {number} nodes at a time"
    in_place = all(
        version_numbers(str(value_of(step, "version"))) >= _FIRST_IN_PLACE for value_of in (before, after)
    )
    in_place = in_place and not is_replaced
    if policy.get("autoUpgrade") is False:
        how = "a new driver pod starts on a node once the old one is deleted"
        yield Effect(Weight.NOTICE, "driver", how)
    elif in_place and not is_upgraded:
        how = f"its pods restart, {order}; a node takes no new pods meanwhile, running pods stay"
        yield Effect(Weight.NOTICE, "driver", how)
    else:
        condition = " if the new chart changes its image, variables or volumes" if in_place else ""
        yield from _upgrade_effects(snapshot, policy, f"is replaced{condition}, {order}", number)


def _at_a_time(policy: _Values, nodes: int) -> int:
    """``maxParallelUpgrades``, where 0 is no limit, and ``maxUnavailable``, a share of the nodes with the
    driver rounded up; the chart's defaults are 1 and 25% [upgrade_inplace.go, common_manager.go]."""
    parallel, unavailable = int(policy.get("maxParallelUpgrades", 1)), policy.get("maxUnavailable", "25%")
    if isinstance(unavailable, str):
        unavailable = math.ceil(nodes * int(unavailable.removesuffix("%")) / 100)
    return min(parallel or nodes, int(unavailable), nodes)


def _upgrade_effects(snapshot: Snapshot, policy: _Values, change: str, number: int) -> Effects:
    failing: dict[PodRef, list[tuple[str, str]]] = {}
    for pool, nodes in sorted(snapshot.nodes.items()):
        stuck, drained = _find_stuck(snapshot, pool, policy)
        failing |= stuck
        kept = {pod.node for pod in stuck if pod.node and not pod.budget_blocks}
        evicted = tuple(
            pod
            for pod in snapshot.pods_on(pool)
            if pod.node in drained or (pod.gpu and pod not in stuck and pod.node not in kept)
        )
        if evicted:
            how = f"the driver {change}" + (
                "; nodes with pods that block this are drained" if drained else ""
            )
            yield Effect(Weight.EVICTION, f"pool {pool}", how, nodes, evicted)
    if snapshot.gpu_nodes:
        how = f"{change}: each loses its pods with GPUs, and offers none until the driver is {_LIMITS}"
        yield Effect(Weight.NOTICE, "driver", how, tuple(sorted(snapshot.gpu_nodes)))
    if failing:
        yield _failure(failing, number)


def _find_stuck(snapshot: Snapshot, pool: str, policy: _Values) -> tuple[_Obstacles, set[str]]:
    """The pods at which the upgrade of their nodes fails; and the nodes that the operator drains instead."""
    daemons = tuple(pod for pod in snapshot.daemons if pod.pool == pool)
    deletion, drain = policy.get("gpuPodDeletion") or {}, policy.get("drain") or {}
    pods = (*snapshot.pods_on(pool, gpu_only=True), *daemons)
    found = {pod: obstacles for pod in pods if (obstacles := [*_obstacles(pod, deletion)])}
    everything = (*snapshot.pods_on(pool), *daemons)
    kept = {pod.node for pod in everything if not drain.get("enable") or any(_obstacles(pod, drain))}
    drained = {pod.node for pod in found} - kept
    return {pod: obstacles for pod, obstacles in found.items() if pod.node not in drained}, drained


def _obstacles(pod: PodRef, flags: _Values) -> Iterator[tuple[str, str]]:
    """Why the pod is not evicted with these flags, and the remedy [pod_manager.go; pkg/drain/filters.go]."""
    if pod.owner.startswith("DaemonSet/"):
        yield "belongs to a DaemonSet", "delete the DaemonSet"
        return
    if pod.is_lost and not flags.get("force"):
        yield driver_upgrade.REASONS["force"], "set gpu_operator.upgrade.force: true"
    if pod.empty_dir and not flags.get("deleteEmptyDir"):
        yield driver_upgrade.REASONS["delete_empty_dir"], "set gpu_operator.upgrade.delete_empty_dir: true"
    if pod.budget_blocks:
        limit = f"{int(flags.get('timeoutSeconds', _DELETION_S))} s"
        fact = f"is kept by PodDisruptionBudget {pod.budget} (given up after {limit})"
        yield fact, "let the budget allow an eviction"


def _failure(failing: _Obstacles, number: int) -> Effect:
    texts = [
        f"{pod.namespace}/{pod.name} {' and '.join(fact for fact, _ in obstacles)}"
        for pod, obstacles in failing.items()
    ]
    remedies = dict.fromkeys(remedy for obstacles in failing.values() for _, remedy in obstacles)
    others = "no other node follows" if number <= 1 else f"each takes one of {number} places"
    how = (
        "fails on the nodes of these pods, which stay cordoned with the old driver (upgrade-failed); "
        f"{others}; first {', '.join(remedies)}, or delete the pods: {abbreviate(texts)}"
    )
    return Effect(Weight.FAILURE, "driver upgrade", how, tuple(sorted({pod.node for pod in failing} - {""})))
