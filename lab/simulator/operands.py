"""The GPU operator: which operands a node gets, the order in which they start, what makes one crash-loop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from lab.simulator import container_engine, device_plugin, driver, faults, gfd, keys, memory
from lab.simulator import counters as dcgm
from lab.simulator.actions import Action, Annotate, Crash, Create, Delete, Event, Recover
from lab.simulator.objects import Pod
from lab.simulator.world import BrokenConfig, Config, World

COMPONENTS = (
    *("client", "container-toolkit", "dcgm", "dcgm-exporter", "device-plugin", "driver"),
    *("gpu-feature-discovery", "node-status-exporter", "operator-validator"),
)
PLUGIN_CHART = "nvidia-device-plugin-"
"""Name prefix of the other DaemonSets in the device plugin's own chart."""
DEFAULT_LAYOUT = "all-disabled"
MIG_DEFAULT = "MIG_MANAGER_DEFAULT_CONFIG"
"""Environment variable of the operator: MIG layout of MIG-capable nodes without the label."""
VALIDATOR, CUDA, TOOLKIT = "validator", "cuda-validator", container_engine.TOOLKIT
NOT_INITIALIZED = "CUDA error: system not yet initialized (802): the fabric manager does not run"
PROBLEMS: dict[str, Callable[[World, Pod, Config], str | None]] = {
    "device-plugin": device_plugin.exit_message,
    "gfd": gfd.exit_message,
    memory.DAEMON: memory.exit_message,
}
CONFIGURED = tuple(PROBLEMS)  # Operands that read the device plugin's ConfigMap


def act(world: World) -> list[Action]:
    """Start operands that may start, crash those that cannot run, recover those that can run again."""
    actions: list[Action] = []
    for pod in world.pods:
        if not pod.operand or pod.deleting or pod.finished or not pod.start:
            continue
        actions += _start_waiting(world, pod) if pod.start == "waits" else _update_started(world, pod)
    return actions


def _start_waiting(world: World, pod: Pod) -> list[Action]:
    if not _may_start(world, pod):
        return []
    if pod.operand == VALIDATOR and not any(job.phase == "Succeeded" for job in world.pods_of(CUDA)):
        return []
    config = world.configs.get(pod.uid)
    if isinstance(config, BrokenConfig) and config.mount:
        return [Event(pod, "FailedMount", config.message, "kubelet")]
    if failure := exit_reason(world, pod):
        return _crash(pod, *failure)
    annotations = {keys.START: "granted"}
    if isinstance(config, Config):
        annotations[keys.LOADED] = config.serialize()
    restarts = container_engine.restart_containerd(world, pod) if pod.operand == TOOLKIT else []
    return [Annotate(pod, annotations, "starts"), *restarts]


def _may_start(world: World, pod: Pod) -> bool:
    """Whether what its init containers wait for is there."""

    def is_there(operand: str) -> bool:
        if operand == VALIDATOR:  # a pod suffices: its init containers wait, and write the files
            return bool(world.pods_of(operand)) and is_there("driver") and is_there(TOOLKIT)
        if operand == "driver":
            return driver.version(world) is not None
        # What no pod brings is on the host.
        return bool(world.running(operand)) or (operand == TOOLKIT and not world.pods_of(operand))

    return all(map(is_there, pod.template.after))


def _update_started(world: World, pod: Pod) -> list[Action]:
    if pod.phase != "Running":
        return []
    if failure := exit_reason(world, pod):
        # The validator fails only at start: a node with a broken fabric counts as rebooted.
        return [Delete(pod)] if pod.operand == VALIDATOR else _crash(pod, *failure)
    actions: list[Action] = [Recover(pod)] if pod.crash else []
    config = world.configs.get(pod.uid)
    if isinstance(config, Config) and pod.loaded != config.serialize():
        # The plugin restarts with the new configuration and forgets unhealthy devices.
        annotations = {keys.LOADED: config.serialize()} | ({keys.UNHEALTHY: ""} if pod.unhealthy else {})
        actions.append(Annotate(pod, annotations, f'reads configuration "{config.label}"'))
    return actions


def _crash(pod: Pod, container: str, message: str) -> list[Action]:
    return [] if pod.crash == message else [Crash(pod, container, message)]


def exit_reason(world: World, pod: Pod) -> tuple[str, str] | None:
    """Failing container and message; None if the operand runs."""
    main, config, message = pod.template.containers[0][0], world.configs.get(pod.uid), None
    if pod.operand == "driver":
        message = driver.exit_message(world, pod)
    elif pod.operand == VALIDATOR and faults.has_fault(world.node, faults.FABRIC):
        main, message = "cuda-validation", NOT_INITIALIZED
    elif pod.operand == dcgm.OPERAND:
        message = dcgm.exit_message(world, pod)
    elif pod.operand in CONFIGURED and isinstance(config, BrokenConfig):
        # A pod that has started keeps its mounted files; one that has not fails in its init container.
        manager = "config-manager-init" if pod.start == "waits" else "config-manager"
        main, message = manager if config.manager else main, config.message
    elif pod.operand in CONFIGURED and isinstance(config, Config):
        message = PROBLEMS[pod.operand](world, pod, config)
    return (main, message) if message else None


def start_validation(world: World) -> list[Action]:
    """Run one CUDA job per node once the plugin runs; its success validates the node."""
    pod = next((pod for pod in world.pods_of(VALIDATOR) if pod.start == "waits" and not pod.deleting), None)
    if pod is None or world.pods_of(CUDA) or not _may_start(world, pod):
        return []
    return [Create(_job(pod))]


def _job(pod: Pod) -> dict[str, object]:
    kind, name, uid = pod.owner
    _, image = pod.template.containers[0]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"nvidia-cuda-validator-{hashlib.sha256(pod.uid.encode()).hexdigest()[:5]}",
            "namespace": pod.namespace,
            "labels": {"app": "nvidia-cuda-validator", keys.PART_OF: keys.CHART, keys.OPERAND: CUDA},
            "annotations": {keys.RUN_ONCE: "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": uid}],
        },
        "spec": {
            "nodeName": pod.node,
            "restartPolicy": "OnFailure",
            "automountServiceAccountToken": False,
            "tolerations": [dict(toleration) for toleration in pod.template.tolerations],
            "containers": [{"name": CUDA, "image": image, "securityContext": {"privileged": True}}],
        },
    }


def set_labels(world: World) -> list[Action]:
    """The operator's labels; values set by others (``paused-for-mig-change``, ``false``) are kept.

    As NVIDIA's (v26.7.0, controllers/nodelabeling_controller.go): they stay when it is uninstalled, and a
    node that shows no GPU loses the labels of the operands, whatever their values.
    """
    labels = world.node.labels
    if world.cluster.is_real:
        return []
    if not world.cluster.operator_installed:
        # NFD's hook removes GFD's labels. Without an operator the device plugin's chart may install GFD, with
        # the chart's name prefix.
        alone = any(pod.owner[1].startswith(PLUGIN_CHART) for pod in world.pods_of("gfd"))
        return gfd.label_changes("gpu-operator", world, {}, set() if alone else gfd.owned_labels(labels))
    if not world.cluster.operator_running:
        return []
    deployed = {key for key in labels if key.startswith(keys.DEPLOY)} - {keys.DEPLOY_OPERANDS}
    if labels.get(keys.PCI_PRESENT) != "true":
        lost = {keys.PRESENT: "false"} if labels.get(keys.PRESENT) == "true" else {}
        return gfd.label_changes("gpu-operator", world, lost, deployed)
    desired = {keys.PRESENT: "true"}
    if labels.get(keys.DEPLOY_OPERANDS) != "false":
        wanted = {f"{keys.DEPLOY}{component}": "true" for component in COMPONENTS}
        if labels.get(keys.MIG_CAPABLE) == "true":
            wanted[f"{keys.DEPLOY}mig-manager"] = "true"
            if world.cluster.mig_default == DEFAULT_LAYOUT:
                wanted[keys.MIG_CONFIG] = DEFAULT_LAYOUT
        desired |= {key: labels.get(key) or value for key, value in wanted.items()}
    return gfd.label_changes("gpu-operator", world, desired, deployed)
