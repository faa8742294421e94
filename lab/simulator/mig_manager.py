"""The MIG manager: applies the MIG layout that the node's label names.

Steps as in NVIDIA's: state ``pending``, the operands that use the GPU are paused by their labels, the layout
is applied, the operands are resumed, state ``success`` or ``failed``. It acts once per value of the label,
and when it starts; the processed value is stored on the node, so that the simulator can be killed at any
point.

mig-parted sets the mode of each GPU and, if a mode is pending then, resets all GPUs ("error resetting all
GPUs") [NVIDIA/mig-parted v0.15.0, cmd/nvidia-mig-parted/apply/mode.go]. If that fails, the MIG manager with
``WITH_REBOOT`` reboots the node [pkg/mig/reconfigure/reconfigure.go]. Message of a refused reset:
NVIDIA/gpu-operator#1606.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lab.simulator import keys, power
from lab.simulator.actions import Action, Delete, Event, NodeMeta
from lab.simulator.device_plugin import original_id, partitions
from lab.simulator.hardware import Mig, device_filter
from lab.simulator.mig_geometry import DoesNotFit, count_profiles, max_instances, place
from lab.simulator.objects import Pod
from lab.simulator.world import BrokenConfig, Layout, World, render_layout

PAUSED = "paused-for-mig-change"
REBOOTING = "rebooting"
MODE_UNCHANGED = "MIG mode change did not take effect after rebooting"
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""What Go's strconv.ParseBool, with which the MIG manager reads its environment, takes for true."""
CLIENTS = ("device-plugin", "gpu-feature-discovery", "dcgm-exporter", "dcgm")
CLIENT_OPERANDS = ("device-plugin", "gfd", "dcgm-exporter", "mps-control-daemon")


def act(world: World) -> list[Action]:
    """The next step towards the label's layout; [] once the label's value is processed."""
    pod = world.running("mig-manager")
    wanted = world.node.labels.get(keys.MIG_CONFIG, "")
    state = world.node.labels.get(keys.MIG_STATE)
    if pod is None or not wanted:
        return []
    if world.node.annotations.get(keys.MIG_DONE) == _mark(pod, wanted) and state in ("success", "failed"):
        return []
    specs = world.configs.get(pod.uid)
    if specs is None:
        return []
    try:
        entries = _entries(world, wanted, specs)
    except DoesNotFit as error:
        return _finish(world, wanted, "failed", str(error))
    if not _changing_gpus(world, entries):
        return _finish(world, wanted, "success")
    switched = _mode_changes(world, entries)
    if switched and state == REBOOTING:
        return _finish(world, wanted, "failed", MODE_UNCHANGED)
    paused = world.relabel(CLIENTS, "true", PAUSED)
    if state != "pending" or paused:
        return [NodeMeta("mig-manager", {keys.MIG_STATE: "pending", **paused})]
    if any(world.pods_of(operand) for operand in CLIENT_OPERANDS):
        return []  # their pods are still terminating
    if any(pod.template.needs_mig_state for pod in world.pods_of(keys.DRA_OPERAND)):
        return []  # the DaemonSet controller removes them on "pending", before MIG is reconfigured
    ampere = world.gpu is not None and world.gpu.compute < power.HOPPER
    stuck = switched if ampere and world.node.annotations.get(keys.GPU_RESET) == "no" else set()
    reboots = pod.template.value("WITH_REBOOT") in _TRUE
    if reboots and (stuck or (switched and _holding_pods(world, _changing_gpus(world, entries)))):
        # The state is set before the node goes; with it, a second MIG manager does not reboot again. On
        # Ampere the mode is pending until the boot. A later GPU is in use, so it has not taken the mode.
        pending = ",".join(str(index) for index in sorted(switched) if ampere)
        stored = render_layout(_without_instances(world, switched))
        annotations = {keys.MIG_PENDING: pending, keys.MIG_LAYOUT: stored}
        return power.reboot(world, "mig-manager", {keys.MIG_STATE: REBOOTING}, dict(annotations))
    if stuck:
        reset_error = f"Resetting GPU 00000000:00:{min(stuck) + 4:02X}.0 is not supported."
        message = f"error setting MIG mode: error resetting all GPUs: {reset_error}"
        return _finish(world, wanted, "failed", message, _without_instances(world, stuck))
    try:
        layout = _apply(world, entries)
    except DoesNotFit as error:
        return _finish(world, wanted, "failed", str(error))
    validators = [*world.pods_of("cuda-validator"), *world.pods_of("validator")]
    return [*map(Delete, validators), *_finish(world, wanted, "success", layout=layout)]


def _without_instances(world: World, switched: set[int]) -> Layout:
    """The MIG state without the instances of these GPUs, which are removed before their mode is set."""
    return {index: () if index in switched else placed for index, placed in world.layout.items()}


def _entries(world: World, wanted: str, specs: object) -> list[Mapping[str, Any]]:
    """Entries of the named configuration that concern this node's GPUs. Raises DoesNotFit."""
    if isinstance(specs, BrokenConfig):
        raise DoesNotFit(f"error parsing config file: {specs.message}")
    configs = getattr(specs, "data", {}).get("mig-configs") or generated_configs(world)
    if wanted not in configs:
        raise DoesNotFit(f"selected mig-config not present: {wanted}; present: {', '.join(sorted(configs))}")
    gpu = device_filter(world.device)
    filters = [(entry, entry.get("device-filter") or gpu) for entry in configs[wanted]]
    return [entry for entry, names in filters if gpu in ([names] if isinstance(names, str) else names)]


def _target_gpus(world: World, entry: Mapping[str, Any]) -> list[int]:
    """Indexes of the entry's GPUs; one past the last is ignored: mig-parted walks the node's GPUs."""
    named = entry["devices"]
    return [index for index in range(world.gpus) if named == "all" or index in named]


def _changing_gpus(world: World, entries: list[Mapping[str, Any]]) -> set[int]:
    """Indexes of the GPUs that differ from an entry; if two entries name one GPU, both are compared."""
    layout = world.layout
    targets = [(index, entry) for entry in entries for index in _target_gpus(world, entry) if index in layout]
    cut = {index for index, entry in targets if count_profiles(layout[index]) != _wanted_profiles(entry)}
    return cut | _mode_changes(world, entries)


def _mode_changes(world: World, entries: list[Mapping[str, Any]]) -> set[int]:
    """Indexes of the GPUs with a MIG mode that differs from an entry."""
    gpu_modes = ((index, entry["mig-enabled"]) for entry in entries for index in _target_gpus(world, entry))
    return {index for index, enabled in gpu_modes if (index in world.layout) != enabled}


def _wanted_profiles(entry: Mapping[str, Any]) -> dict[str, int]:
    return {name: count for name, count in (entry.get("mig-devices") or {}).items() if count}


def _apply(world: World, entries: list[Mapping[str, Any]]) -> Layout:
    """The node's MIG state with the entries applied.

    Raises DoesNotFit, also while a pod holds a GPU that has to change; a GPU that already matches is left
    alone, even in use.
    """
    changing = _changing_gpus(world, entries)
    if holders := _holding_pods(world, changing):
        raise DoesNotFit(f"In use by another client: {', '.join(sorted(holders))}")
    layout = world.layout
    for entry in entries:
        for index in changing.intersection(_target_gpus(world, entry)):
            layout.pop(index, None)
            if entry["mig-enabled"]:
                layout[index] = place(_geometry(world), _wanted_profiles(entry))
    return layout


def _holding_pods(world: World, changing: set[int]) -> set[str]:
    """Pods with a device of a GPU that has to change, or with one that no longer exists."""
    known = partitions(world)
    holders = {
        f"{pod.namespace}/{pod.name}"
        for pod in world.consumers
        for device in pod.devices.split(",")
        if device and (original_id(device) not in known or known[original_id(device)].gpu in changing)
    }
    return holders | {pod for claim in world.claims if claim.gpus & changing for pod in claim.pods}


def _geometry(world: World) -> Mig:
    if world.gpu is None or world.gpu.mig is None:
        raise DoesNotFit("MIG mode is not supported by this GPU")
    return world.gpu.mig


def _mark(pod: Pod, wanted: str) -> str:
    return f"{wanted} by {pod.uid}"


def _finish(
    world: World, wanted: str, state: str, message: str = "", layout: Layout | None = None
) -> list[Action]:
    pod = world.running("mig-manager")
    assert pod
    annotations: dict[str, str | None] = {keys.MIG_DONE: _mark(pod, wanted)}
    if layout is not None:
        annotations[keys.MIG_LAYOUT] = render_layout(layout)
    labels = world.relabel(CLIENTS, PAUSED, "true")
    if world.node.labels.get(keys.MIG_STATE) != state:
        labels[keys.MIG_STATE] = state
    actions: list[Action] = [NodeMeta("mig-manager", labels, annotations)]
    if message:
        text = f"{keys.MIG_CONFIG}={wanted}: {message}"
        actions.append(Event(None, "MIGConfigFailed", text, "nvidia-mig-manager"))
    return actions


def generated_configs(world: World) -> dict[str, list[dict[str, Any]]]:
    """Configurations without a ConfigMap: MIG off, and for each profile as many instances as fit."""
    configs: dict[str, list[dict[str, Any]]] = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
    mig = world.gpu.mig if world.gpu else None
    for name in mig.profiles if mig else ():
        assert mig is not None
        layout = {name: max_instances(mig, name)}
        key = f"all-{name.replace('+', '.')}"
        configs[key] = [{"devices": "all", "mig-enabled": True, "mig-devices": layout}]
    return configs
