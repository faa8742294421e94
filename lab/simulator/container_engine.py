"""The container engine: whether it starts with what NVIDIA's toolkit wrote, and gives containers their GPUs.

Sources: nvidia-container-toolkit, cmd/nvidia-ctk-installer/container (its sources; a drop-in since 1.18, in
the version that the first source has); containerd, RELEASES.md (the newest version, which a dump has) and
LoadConfigWithPlugins in 2.3.0 to 2.3.4 (a drop-in may not have a higher version than the root file; taken
back on release/2.3). A node that names no version has a file in version 2, as nodes of AKS had
(NVIDIA/aicr#1688). A node without the name of its engine was made by an older version of gpuform or by
another tool: its engine accepts every setting.

The device plugin names a pod's GPUs as CDI devices, by mounts or by a variable (DEVICE_LIST_STRATEGY). An
engine without CDI ignores the first, and runc the others: the container starts without a GPU, and nothing
reports it before the program looks for one. Sources: containerd, docs/cri/config.md (``enable_cdi``) and
release notes of 1.7.0 and 2.0.0; CRI-O 1.23.0; k8s-device-plugin, README; gpu-operator 26.7.0,
controllers/object_controls.go (with CDI the toolkit enables it and leaves the default runtime, otherwise it
makes its own the default).

Not modelled: settings that 2.0 to 2.2 lose if the versions differ, a runtime without runtime_type, a toolkit
that accepts the variable from privileged containers only, and pods that keep GPUs which they got another way.
"""

from __future__ import annotations

from lab.simulator import keys
from lab.simulator.actions import Action, Crash, NodeMeta, Recover
from lab.simulator.objects import Pod
from lab.simulator.world import World

TOOLKIT = "toolkit"
DEFAULT_VERSION, NEWEST_VERSION = "2", 4
_SOURCES = ("RUNTIME_CONFIG_SOURCES", "RUNTIME_CONFIG_SOURCE")
_FIRST_DROP_IN = (1, 18)
_FIRST_STRICT, _FIRST_LENIENT = (2, 3), (2, 3, 5)
_CDI = {"containerd": ((1, 7), (2, 0)), "cri-o": ((1, 23), (1, 23))}
"""First version of each engine with CDI, and first one that has it on by default."""
NVIDIA = "nvidia"
NO_GPU = "CUDA error: no CUDA-capable device is detected (100)"
NO_DEVICE = "no device file of a GPU (/dev/nvidia*)"
"""Message of a CUDA program, and of the readiness gate's, without a GPU."""


def is_down(world: World) -> bool:
    """Whether the engine has ended: nothing starts on the node until a person has mended it."""
    return keys.RUNTIME_DOWN in world.node.annotations


def restart_containerd(world: World, pod: Pod) -> list[Action]:
    """The toolkit's pod has written its drop-in, and restarts containerd."""
    annotations = world.node.annotations
    if not (engine := annotations.get(keys.CONTAINER_RUNTIME)):
        return []
    name, version = _parse_engine(engine)
    root_version = int(annotations.get(keys.CONTAINERD_CONFIG, DEFAULT_VERSION))
    drop_in_version = _written_version(pod, root_version)
    is_strict = name == "containerd" and _FIRST_STRICT <= version < _FIRST_LENIENT
    if not is_strict or drop_in_version <= root_version:
        return []
    refusal = f"drop-in config version {drop_in_version} higher than root config version {root_version}"
    return [NodeMeta("containerd", {}, {keys.RUNTIME_DOWN: f"containerd: {refusal}"})]


def gives_gpus(world: World, pod: Pod) -> bool:
    """Whether the pod's containers get the GPUs that the kubelet allocated to it."""
    plugin, toolkit = world.running("device-plugin"), world.running(TOOLKIT)
    by_cdi = toolkit is not None and toolkit.template.value("CDI_ENABLED") == "true"
    assert plugin  # it has allocated them
    if not (engine := world.node.annotations.get(keys.CONTAINER_RUNTIME)):
        return True
    if "cdi" in plugin.template.value("DEVICE_LIST_STRATEGY"):
        name, version = _parse_engine(engine)
        first, default_since = _CDI[name]
        enabled = version >= default_since or by_cdi or world.node.annotations.get(keys.CDI) == "on"
        return version >= first and enabled
    default = world.node.annotations.get(keys.DEFAULT_RUNTIME) or ("runc" if by_cdi else NVIDIA)
    return NVIDIA in (pod.runtime_class or default)


def act(world: World) -> list[Action]:
    """Programs without a GPU end and are restarted, until they have one."""
    actions: list[Action] = []
    for pod in world.consumers if world.running("device-plugin") else ():
        if not pod.devices or pod.phase != "Running" or pod.deleting or pod.trial:
            continue
        has_gpus = gives_gpus(world, pod)
        if has_gpus and pod.crash == NO_GPU:
            actions.append(Recover(pod))
        elif not has_gpus and not pod.crash:
            actions.append(Crash(pod, pod.requests[0][0], NO_GPU))
    return actions


def _parse_engine(engine: str) -> tuple[str, tuple[int, ...]]:
    name, _, version = engine.partition("://")
    return name, _parse_version(version)


def _written_version(pod: Pod, root_version: int) -> int:
    if _parse_version(pod.template.containers[0][1].rpartition(":")[2].removeprefix("v")) < _FIRST_DROP_IN:
        return root_version
    sources = next(filter(None, map(pod.template.value, _SOURCES)), "command,file")
    return NEWEST_VERSION if sources.startswith("command") else root_version


def _parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split("."))
