"""Which configuration each operand pod of a node has read, or would read now.

They are parsed with NVIDIA's own types, in the helper process ``nvidia-config``.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from lab.simulator import counters as dcgm
from lab.simulator import device_plugin, dra, keys
from lab.simulator.objects import Node, Pod
from lab.simulator.operands import CONFIGURED
from lab.simulator.world import BrokenConfig, Config

ConfigMaps = dict[tuple[str, str], dict[str, str]]
EMPTY = "version: v1\n"
MIG_FILE = "config.yaml"
DEVICE_PLUGIN = "device-plugin"
MIG_PARTED = "mig-parted"
_LINE = 8 * 1024 * 1024


class HelperError(RuntimeError):
    """The helper does not run or does not answer."""


class NvidiaConfig:
    """One helper process, started on demand and restarted if it has ended; answers are cached by content."""

    def __init__(self, binary: Path) -> None:
        self._binary = binary
        self._process: asyncio.subprocess.Process | None = None
        self._lock = asyncio.Lock()
        self._known: dict[tuple[str, str], dict[str, Any]] = {}
        self._last_id = 0

    async def read(self, kind: str, text: str, label: str) -> Config | BrokenConfig:
        """Parse ``text`` with NVIDIA's types. Raises HelperError."""
        async with self._lock:
            if (kind, text) not in self._known:
                if len(self._known) > 256:
                    self._known.clear()
                self._known[kind, text] = await self._ask(kind, text)
            answer = self._known[kind, text]
        if answer["error"] is not None:
            return BrokenConfig(f"unable to load config: error parsing config file: {answer['error']}")
        return Config(label, answer.get("strategy") or "none", answer["config"])

    async def _ask(self, kind: str, text: str) -> dict[str, Any]:
        try:
            if self._process is None or self._process.returncode is not None:
                pipe = asyncio.subprocess.PIPE
                self._process = await asyncio.create_subprocess_exec(
                    str(self._binary), stdin=pipe, stdout=pipe, limit=_LINE
                )
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            self._last_id += 1
            request = json.dumps({"id": self._last_id, "kind": kind, "yaml": text})
            process.stdin.write(request.encode() + b"\n")
            await process.stdin.drain()
            line = await asyncio.wait_for(process.stdout.readline(), timeout=30)
        except OSError as error:  # a timeout, too
            await self.close()
            raise HelperError(f"{self._binary}: {error.strerror or repr(error)}") from error
        if not line:
            await self.close()
            raise HelperError(f"{self._binary} ended without an answer")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


async def resolve(
    node: Node, pods: list[Pod], maps: ConfigMaps, helper: NvidiaConfig
) -> dict[str, Config | BrokenConfig]:
    """Configurations by pod uid, for the pods that read one. Raises HelperError."""
    configs: dict[str, Config | BrokenConfig] = {}
    for pod in pods:
        if pod.operand in CONFIGURED:
            configs[pod.uid] = await _plugin_config(node, pod, maps, helper)
        elif pod.operand == "mig-manager":
            configs[pod.uid] = await _mig_config(pod, maps, helper)
        elif pod.operand == dra.OPERAND:
            configs[pod.uid] = dra.discovered_layout(node, pod)
        elif pod.operand == dcgm.OPERAND and (broken := dcgm.config_error(pod, maps)):
            configs[pod.uid] = broken
    return configs


async def _plugin_config(
    node: Node, pod: Pod, maps: ConfigMaps, helper: NvidiaConfig
) -> Config | BrokenConfig:
    label = node.labels.get(keys.PLUGIN_CONFIG, "")
    mounted = (pod.namespace, pod.template.config_map) in maps
    if pod.loaded:
        # The pod reads again only when the label changes: an edited or deleted ConfigMap goes unnoticed.
        loaded = Config.parse(pod.loaded)
        if loaded.label == label or not mounted:
            return loaded
    if not pod.template.config_map:
        return await helper.read(DEVICE_PLUGIN, EMPTY, "")
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        return _missing_mount(pod)
    key = device_plugin.select_config(label, pod.template.value("DEFAULT_CONFIG"), sorted(data))
    if isinstance(key, BrokenConfig):
        return key
    return await helper.read(DEVICE_PLUGIN, data[key] if key else EMPTY, label)


async def _mig_config(pod: Pod, maps: ConfigMaps, helper: NvidiaConfig) -> Config | BrokenConfig:
    if not pod.template.config_map:
        return Config("")  # the MIG manager generates one from the hardware
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        return _missing_mount(pod)
    if MIG_FILE not in data:
        return BrokenConfig(f"open /mig-parted-config/{MIG_FILE}: no such file or directory")
    return await helper.read(MIG_PARTED, data[MIG_FILE], "")


def _missing_mount(pod: Pod) -> BrokenConfig:
    name = pod.template.config_map
    text = f'MountVolume.SetUp failed for volume "{name}" : configmap "{name}" not found'
    return BrokenConfig(text, mount=True)
