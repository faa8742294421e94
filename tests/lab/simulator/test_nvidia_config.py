"""The Go helper: NVIDIA's own types parse our configurations, and no key of ours is silently dropped."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from lab.simulator import configs, keys
from lab.simulator.configs import DEVICE_PLUGIN, MIG_PARTED, HelperError, NvidiaConfig
from lab.simulator.objects import Node, Pod
from lab.simulator.world import BrokenConfig, Config
from lab.toolchain import Toolchain
from tests.lab.simulator.worlds import make_pod

pytestmark = pytest.mark.unit
T = TypeVar("T")

SLICE_4 = """\
version: v1
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources:
      - name: nvidia.com/gpu
        replicas: 4
"""
ANY = "version: v1\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n"
MPS = "version: v1\nsharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}\n"
CERN_MIG = """\
version: v1
mig-configs:
  3g.20gb-2x2g.10gb:
    - devices: all
      mig-enabled: true
      mig-devices: {"2g.10gb": 2, "3g.20gb": 1}
"""


@pytest.fixture(scope="module")
def binary(toolchain: Toolchain) -> Path:
    if toolchain.locate("nvidia-config").path is None and shutil.which("go") is None:
        pytest.skip("nvidia-config is not built and go is not on PATH")
    return toolchain.path("nvidia-config")


def with_helper(binary: Path, does: Callable[[NvidiaConfig], Awaitable[T]]) -> T:
    async def once() -> T:
        helper = NvidiaConfig(binary)
        try:
            return await does(helper)
        finally:
            await helper.close()

    return asyncio.run(once())


def read(binary: Path, kind: str, text: str) -> Config | BrokenConfig:
    return with_helper(binary, lambda helper: helper.read(kind, text, "label"))


def test_a_configuration_is_read_whole(binary: Path) -> None:
    result = read(binary, DEVICE_PLUGIN, SLICE_4)
    assert isinstance(result, Config)
    assert (result.label, result.strategy) == ("label", "time-slicing")
    renamed = {"name": "nvidia.com/gpu", "devices": "all", "rename": "nvidia.com/gpu.shared", "replicas": 4}
    block = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": [renamed]}
    assert result.data["sharing"]["timeSlicing"] == block
    # MPS gives one share per request.
    shared = read(binary, DEVICE_PLUGIN, MPS)
    assert isinstance(shared, Config)
    assert shared.data["sharing"]["mps"]["failRequestsGreaterThanOne"] is True


REFUSED = [
    (DEVICE_PLUGIN, "version: [\n", "error converting YAML to JSON"),
    (MIG_PARTED, CERN_MIG.replace("mig-devices", "mig-device"), "unexpected field: mig-device"),
    (MIG_PARTED, CERN_MIG.replace('"2g.10gb": 2', '"2x.10gb": 2'), "invalid format for '2x.10gb'"),
    ("karpenter", "", 'unknown kind "karpenter"; known: device-plugin, mig-parted'),
]


@pytest.mark.parametrize(("kind", "text", "message"), REFUSED)
def test_refused_in_nvidias_words(binary: Path, kind: str, text: str, message: str) -> None:
    result = read(binary, kind, text)
    assert isinstance(result, BrokenConfig)
    assert message in result.message


LOST = [
    (SLICE_4, ""),
    (SLICE_4.replace("timeSlicing", "timeslicing"), "sharing.timeslicing.resources[0].replicas"),
    (SLICE_4 + "        renamebydefault: false\n", "sharing.timeSlicing.resources[0].renamebydefault"),
]


@pytest.mark.parametrize(("text", "lost"), LOST)
def test_check_names_the_keys_that_are_lost(binary: Path, tmp_path: Path, text: str, lost: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    done = subprocess.run([binary, "check", DEVICE_PLUGIN, file], capture_output=True, text=True)
    assert done.returncode == (1 if lost else 0), done.stderr
    assert done.stderr == "" if not lost else f": {lost}: NVIDIA's types drop this key" in done.stderr


def test_helper_that_is_killed_is_started_again(binary: Path) -> None:
    async def twice(helper: NvidiaConfig) -> tuple[Config | BrokenConfig, Config | BrokenConfig]:
        first = await helper.read(DEVICE_PLUGIN, SLICE_4, "")
        process = helper._process
        assert process is not None
        process.kill()
        await process.wait()
        return first, await helper.read(DEVICE_PLUGIN, ANY, "")

    assert [type(found) for found in with_helper(binary, twice)] == [Config, Config]


def test_helper_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HelperError, match="nothing: No such file"):
        read(tmp_path / "nothing", DEVICE_PLUGIN, SLICE_4)


def resolved(binary: Path, label: str, pod: Pod, maps: configs.ConfigMaps) -> Config | BrokenConfig | None:
    node = Node("n", "u", 1, {keys.PLUGIN_CONFIG: label} if label else {}, {}, {}, {})
    return with_helper(binary, lambda helper: configs.resolve(node, [pod], maps, helper)).get(pod.uid)


def test_edited_config_map_goes_unnoticed_until_the_label_changes(binary: Path) -> None:
    maps = {("gpu-operator", "cm"): {"slice-4": SLICE_4, "other": ANY}}
    pod = make_pod("p", "device-plugin", config_map="cm")
    first = resolved(binary, "slice-4", pod, maps)
    assert isinstance(first, Config)
    pod.loaded = first.serialize()
    maps["gpu-operator", "cm"]["slice-4"] = SLICE_4.replace("4", "8")
    assert resolved(binary, "slice-4", pod, maps) == first
    assert resolved(binary, "slice-4", pod, {}) == first
    changed = resolved(binary, "other", pod, maps)
    assert isinstance(changed, Config)
    assert changed.label == "other"
    typo = BrokenConfig("specified config typo does not exist", manager=True)
    assert resolved(binary, "typo", pod, maps) == typo


def test_missing_config_map(binary: Path) -> None:
    missing = resolved(binary, "", make_pod("p", "gfd", config_map="cm"), {})
    assert isinstance(missing, BrokenConfig)
    assert (missing.mount, 'configmap "cm" not found' in missing.message) == (True, True)
