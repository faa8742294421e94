"""The order in which operands start on a node, and what makes one crash-loop."""

from __future__ import annotations

from collections.abc import Callable

from lab.simulator import (
    container_engine,
    device_plugin,
    driver,
    driver_manager,
    gfd,
    keys,
    mps,
    validator,
)
from lab.simulator.actions import Action, Annotate, Crash, Delete, Event, Recover
from lab.simulator.dcgm import operand as dcgm
from lab.simulator.objects import Pod
from lab.simulator.world import Broken, Config, World

PROBLEMS: dict[str, Callable[[World, Pod, Config], str | None]] = {
    "device-plugin": device_plugin.problem,
    "gfd": gfd.problem,
    mps.DAEMON: mps.problem,
}
CONFIGURED = tuple(PROBLEMS)
"""Operands that read the device plugin's ConfigMap."""


def act(world: World) -> list[Action]:
    """Start operands that may start, crash those that cannot run, recover those that can run again."""
    found: list[Action] = []
    for pod in world.pods:
        if not pod.operand or pod.deleting or pod.finished or not pod.start:
            continue
        found += _waiting(world, pod) if pod.start == "waits" else _started(world, pod)
    return found


def _waiting(world: World, pod: Pod) -> list[Action]:
    if not all(world.running(operand) for operand in pod.template.after) or not validator.ready(world, pod):
        return []
    config = world.configs.get(pod.uid)
    if isinstance(config, Broken) and config.mount:
        return [Event(pod, "FailedMount", config.message, "kubelet")]
    first: list[Action] = []
    if pod.operand == "driver":
        steps = driver_manager.clear(world, pod, driver.tag(pod))
        if steps is not None:
            return steps
        first = driver_manager.restore(world)
    failure = problem(world, pod)
    if failure:
        return first + _crash(pod, *failure)
    annotations = {keys.START: "granted"}
    if isinstance(config, Config):
        annotations[keys.LOADED] = config.stored()
    last = container_engine.restart(world, pod) if pod.operand == container_engine.TOOLKIT else []
    return [*first, Annotate(pod, annotations, "starts"), *last]


def _started(world: World, pod: Pod) -> list[Action]:
    if pod.phase != "Running":
        return []
    failure = problem(world, pod)
    if failure and pod.operand == validator.OPERAND:
        return [Delete(pod)]  # it fails only at start: a node with a broken fabric counts as rebooted
    if failure:
        return _crash(pod, *failure)
    found: list[Action] = [Recover(pod)] if pod.crash else []
    config = world.configs.get(pod.uid)
    if isinstance(config, Config) and pod.loaded != config.stored():
        # The plugin restarts with the new configuration and forgets unhealthy devices.
        annotations = {keys.LOADED: config.stored()} | ({keys.UNHEALTHY: ""} if pod.unhealthy else {})
        found.append(Annotate(pod, annotations, f'reads configuration "{config.label}"'))
    return found


def _crash(pod: Pod, container: str, message: str) -> list[Action]:
    return [] if pod.crash == message else [Crash(pod, container, message)]


def problem(world: World, pod: Pod) -> tuple[str, str] | None:
    """Failing container and message; None if the operand runs."""
    main = pod.template.containers[0][0]
    if pod.operand == "driver":
        message = driver.problem(world, pod)
        return (main, message) if message else None
    if pod.operand == validator.OPERAND:
        return validator.problem(world)
    if pod.operand == dcgm.OPERAND:
        message = dcgm.problem(world, pod)
        return (main, message) if message else None
    if pod.operand not in CONFIGURED:
        return None
    config = world.configs.get(pod.uid)
    if isinstance(config, Broken):
        # A pod that has started keeps its mounted files; one that has not fails in its init container.
        manager = "config-manager-init" if pod.start == "waits" else "config-manager"
        return (manager if config.manager else main, config.message)
    if config is None:
        return None
    message = PROBLEMS[pod.operand](world, pod, config)
    return (main, message) if message else None
