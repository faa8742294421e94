"""The operator's upgrade controller: takes a node step by step to the driver that its DaemonSet now says.

The states, their order and what ends each are those of NVIDIA's k8s-operator-libs (pkg/upgrade), as the
operator 26.7 uses it. Each step follows from the node's label, so that it can be killed at any point. Which
nodes may begin is decided for all of them together: ``upgrade_policy.admitted``.

It sees pods that request GPUs, and no others: these are evicted, and a drain moves no more than that.
Timeouts never run out, and a driver that crash-loops has failed at once, where the real one counts to ten.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuform.simulator import keys
from gpuform.simulator.actions import Action, Cordon, Delete, Event, Evict, NodeMeta
from gpuform.simulator.nfd import difference
from gpuform.simulator.objects import Pod
from gpuform.simulator.upgrade_policy import CORDON, DONE, REQUIRED, Policy, Removal, matches
from gpuform.simulator.world import World

BY = "upgrade-controller"
WAIT, DELETION, DRAIN = "wait-for-jobs-required", "pod-deletion-required", "drain-required"
RESTART, VALIDATION, UNCORDON = "pod-restart-required", "validation-required", "uncordon-required"
FAILED = "upgrade-failed"
REASON = "GPUDriverUpgrade"
DIGEST = "DRIVER_CONFIG_DIGEST"


def act(world: World) -> list[Action]:
    """The next step of this node; without ``autoUpgrade`` its state is taken off."""
    if not world.cluster.operator_running:
        return []
    policy = world.cluster.upgrade
    if policy is None:
        return difference(BY, world, {}, {keys.UPGRADE_STATE})
    pod = next((pod for pod in world.of("driver") if not pod.finished), None)
    if pod is None or not world.cluster.driver_revision:
        return []
    step = _STEPS.get(world.node.labels.get(keys.UPGRADE_STATE, ""))
    return step(world, pod, policy) if step else []


def begin(world: World) -> list[Action]:
    """What a node begins with: all the steps where another driver comes, else its pod alone is restarted."""
    pod = next((pod for pod in world.of("driver") if not pod.finished), None)
    digest = pod.template.value(DIGEST) if pod else ""
    asked = keys.UPGRADE_REQUESTED in world.node.annotations
    forget: dict[str, str | None] = {keys.UPGRADE_REQUESTED: None} if asked else {}
    if digest and digest == world.cluster.driver_digest and not asked:
        return [Cordon(True), _state(RESTART)]
    return [NodeMeta(BY, {keys.UPGRADE_STATE: CORDON}, forget)]


def _settled(world: World, pod: Pod, _: Policy) -> list[Action]:
    annotations: dict[str, str | None] = {}
    if _synced(world, pod) and world.node.annotations.get(keys.UPGRADE_REQUESTED) != "true":
        return [] if world.node.labels.get(keys.UPGRADE_STATE) == DONE else [_state(DONE)]
    if world.node.unschedulable:
        annotations[keys.UPGRADE_INITIAL] = "true"  # it is left cordoned in the end
    return [NodeMeta(BY, {keys.UPGRADE_STATE: REQUIRED}, annotations)]


def _cordon(_: World, __: Pod, ___: Policy) -> list[Action]:
    return [Cordon(True), _state(WAIT)]


def _wait(world: World, _: Pod, policy: Policy) -> list[Action]:
    if policy.wait_for and any(matches(policy.wait_for, pod.labels) for pod in world.consumers):
        return []
    return [_state(DELETION)]


def _deletion(world: World, _: Pod, policy: Policy) -> list[Action]:
    return _remove(_users(world), policy.deletion, FAILED if policy.drain is None else DRAIN)


def _drain(world: World, _: Pod, policy: Policy) -> list[Action]:
    if policy.drain is None:
        return [_state(RESTART)]
    chosen = [pod for pod in _users(world) if matches(policy.drain.selector, pod.labels)]
    return _remove([pod for pod in chosen if pod.owner[0] != "DaemonSet"], policy.drain, FAILED)


def _remove(pods: list[Pod], removal: Removal, otherwise: str) -> list[Action]:
    """Evict all of them, or where one may not be evicted, none; then the driver's pod."""
    if not pods:
        return [_state(RESTART)]
    held = [pod for pod in pods if not _evictable(pod, removal)]
    if held:
        names = ", ".join(sorted(f"{pod.namespace}/{pod.name}" for pod in held))
        text = f"Cannot delete all required pods: {names}: {otherwise}"
        return [_state(otherwise), Event(None, REASON, text, "nvidia-gpu-operator")]
    return [Evict(pod) for pod in pods if not pod.deleting]


def _evictable(pod: Pod, removal: Removal) -> bool:
    kind = pod.owner[0]
    return kind != "DaemonSet" and (bool(kind) or removal.force) and (not pod.scratch or removal.scratch)


def _restart(world: World, pod: Pod, _: Policy) -> list[Action]:
    if not _synced(world, pod):
        return [] if pod.deleting else [Delete(pod)]
    if pod.running:
        return [_state(VALIDATION)]
    if pod.crash:
        text = f"Driver pod {pod.name} is failing with repeated restarts: {pod.crash}"
        return [_state(FAILED), Event(None, REASON, text, "nvidia-gpu-operator")]
    return []


def _validation(world: World, _: Pod, __: Policy) -> list[Action]:
    """The validator runs anew. Where the operator sends none there is nothing to wait for; NVIDIA's waits."""
    validators = world.of("validator")
    expected = f"{keys.DEPLOY}operator-validator" in world.node.labels
    done = all(pod.running for pod in validators) and bool(validators or not expected)
    return _back(world) if done else []


def _uncordon(_: World, __: Pod, ___: Policy) -> list[Action]:
    return [Cordon(False), _state(DONE)]


def _failed(world: World, pod: Pod, _: Policy) -> list[Action]:
    """Somebody has put the driver right: that is seen; nothing is tried again by itself."""
    return _back(world) if _synced(world, pod) and pod.running else []


def _back(world: World) -> list[Action]:
    """A node that was cordoned before stays so."""
    if keys.UPGRADE_INITIAL in world.node.annotations:
        return [NodeMeta(BY, {keys.UPGRADE_STATE: DONE}, {keys.UPGRADE_INITIAL: None})]
    return [_state(UNCORDON)]


def _users(world: World) -> list[Pod]:
    """Pods that use a GPU for NVIDIA's operator: it looks at what containers ask, not at init containers."""
    prefixes = (keys.GPU, f"{keys.VENDOR}mig-")
    return [
        pod
        for pod in world.consumers
        if any(name.startswith(prefixes) for _, init, asks in pod.requests if not init for name, _ in asks)
    ]


def _synced(world: World, pod: Pod) -> bool:
    return pod.revision == world.cluster.driver_revision


def _state(state: str) -> NodeMeta:
    return NodeMeta(BY, {keys.UPGRADE_STATE: state})


_STEPS: dict[str, Callable[[World, Pod, Policy], list[Action]]] = {
    "": _settled,
    DONE: _settled,
    CORDON: _cordon,
    WAIT: _wait,
    DELETION: _deletion,
    DRAIN: _drain,
    RESTART: _restart,
    VALIDATION: _validation,
    UNCORDON: _uncordon,
    FAILED: _failed,
}
"""``upgrade-required`` is missing: such a node waits until it is admitted."""
