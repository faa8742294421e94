"""The container engine: what NVIDIA's toolkit writes into containerd's configuration, and whether it starts.

Sources: nvidia-container-toolkit, cmd/nvidia-ctk-installer/container (its sources; a drop-in since 1.18, in
the version that the first source has); containerd, RELEASES.md (the newest version, which a dump has) and
LoadConfigWithPlugins in 2.3.0 to 2.3.4 (a drop-in may not have a higher version than the root file; taken
back on release/2.3). A node without annotations has such a containerd and a file in version 2, as nodes of
AKS had (NVIDIA/aicr#1688).
Not modelled: settings that 2.0 to 2.2 lose if the versions differ, and a runtime without runtime_type.
"""

from __future__ import annotations

from gpuform.simulator import keys
from gpuform.simulator.actions import Action, NodeMeta
from gpuform.simulator.objects import Pod
from gpuform.simulator.world import World

TOOLKIT = "toolkit"
ENGINE, FILE, NEWEST = "containerd://2.3.4", "2", 4
_SOURCES = ("RUNTIME_CONFIG_SOURCES", "RUNTIME_CONFIG_SOURCE")
_FIRST_DROP_IN = (1, 18)
_FIRST_STRICT, _FIRST_LENIENT = (2, 3), (2, 3, 5)


def down(world: World) -> bool:
    """Whether the engine has ended: nothing starts on the node until a person has mended it."""
    return keys.RUNTIME_DOWN in world.node.annotations


def restart(world: World, pod: Pod) -> list[Action]:
    """The toolkit's pod has written its drop-in, and restarts containerd."""
    notes = world.node.annotations
    engine, _, version = notes.get(keys.CONTAINER_RUNTIME, ENGINE).partition("://")
    own = int(notes.get(keys.CONTAINERD_CONFIG, FILE))
    written = _written(pod, own)
    if engine != "containerd" or not _FIRST_STRICT <= _numbers(version) < _FIRST_LENIENT or written <= own:
        return []
    refusal = f"containerd: drop-in config version {written} higher than root config version {own}"
    return [NodeMeta("containerd", {}, {keys.RUNTIME_DOWN: refusal})]


def _written(pod: Pod, own: int) -> int:
    if _numbers(pod.template.containers[0][1].rpartition(":")[2].removeprefix("v")) < _FIRST_DROP_IN:
        return own
    sources = next(filter(None, map(pod.template.value, _SOURCES)), "command,file")
    return NEWEST if sources.startswith("command") else own


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.partition("-")[0].split("."))
