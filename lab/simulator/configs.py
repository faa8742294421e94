"""Which configuration each operand pod of a node has read, or would read now.

They are parsed with NVIDIA's own types, in the helper process ``nvidia-config``.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from lab.simulator import device_plugin, dra, keys
from lab.simulator.dcgm import counters as dcgm
from lab.simulator.objects import Node, Pod
from lab.simulator.operands import CONFIGURED
from lab.simulator.world import Broken, Config

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
        self._asked = 0

    async def read(self, kind: str, text: str, label: str) -> Config | Broken:
        """Parse ``text`` with NVIDIA's types. Raises HelperError."""
        async with self._lock:
            if (kind, text) not in self._known:
                if len(self._known) > 256:
                    self._known.clear()
                self._known[kind, text] = await self._ask(kind, text)
            answer = self._known[kind, text]
        if answer["error"] is not None:
            return Broken(f"unable to load config: error parsing config file: {answer['error']}")
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
            self._asked += 1
            request = json.dumps({"id": self._asked, "kind": kind, "yaml": text})
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
) -> dict[str, Config | Broken]:
    """Configurations by pod uid, for the pods that read one. Raises HelperError."""
    found: dict[str, Config | Broken] = {}
    for pod in pods:
        if pod.operand in CONFIGURED:
            found[pod.uid] = await _plugin(node, pod, maps, helper)
        elif pod.operand == "mig-manager":
            found[pod.uid] = await _mig(pod, maps, helper)
        elif pod.operand == dra.OPERAND:
            found[pod.uid] = dra.discovered(node, pod)
        elif pod.operand == dcgm.OPERAND and (broken := dcgm.wrong(pod, maps)):
            found[pod.uid] = broken
    return found


async def _plugin(node: Node, pod: Pod, maps: ConfigMaps, helper: NvidiaConfig) -> Config | Broken:
    label = node.labels.get(keys.PLUGIN_CONFIG, "")
    mounted = (pod.namespace, pod.template.config_map) in maps
    if pod.loaded:
        # The pod reads again only when the label changes: an edited or deleted ConfigMap goes unnoticed.
        kept = json.loads(pod.loaded)
        if kept["label"] == label or not mounted:
            return Config(kept["label"], kept["strategy"], kept["config"])
    if not pod.template.config_map:
        return await helper.read(DEVICE_PLUGIN, EMPTY, "")
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        return _unmounted(pod)
    key = device_plugin.select(label, pod.template.value("DEFAULT_CONFIG"), sorted(data))
    if isinstance(key, Broken):
        return key
    return await helper.read(DEVICE_PLUGIN, data[key] if key else EMPTY, label)


async def _mig(pod: Pod, maps: ConfigMaps, helper: NvidiaConfig) -> Config | Broken:
    if not pod.template.config_map:
        return Config("")  # the MIG manager generates one from the hardware
    data = maps.get((pod.namespace, pod.template.config_map))
    if data is None:
        return _unmounted(pod)
    if MIG_FILE not in data:
        return Broken(f"open /mig-parted-config/{MIG_FILE}: no such file or directory")
    return await helper.read(MIG_PARTED, data[MIG_FILE], "")


def _unmounted(pod: Pod) -> Broken:
    name = pod.template.config_map
    return Broken(f'MountVolume.SetUp failed for volume "{name}" : configmap "{name}" not found', mount=True)
