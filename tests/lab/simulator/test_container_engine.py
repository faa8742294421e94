"""Which containerd ends because of what the toolkit wrote, and which pods get their GPUs."""

from __future__ import annotations

import pytest

from infra.plan import nodes
from lab.simulator import container_engine, keys, kubelet, operands
from lab.simulator.actions import Annotate, Crash, Fail, NodeMeta, Recover
from lab.simulator.world import Config
from tests.lab.simulator.worlds import make_pod, make_world

pytestmark = pytest.mark.unit

STRICT = nodes.CONTAINER_RUNTIME
FILE = {"RUNTIME_CONFIG_SOURCE": "file"}
HIGHER = "containerd: drop-in config version {} higher than root config version {}"


@pytest.mark.parametrize(
    ("engine", "file", "toolkit", "env", "refused"),
    [
        ("", "", "v1.20.0", {}, None),  # a node of a version of gpuform that named no engine
        (STRICT, "", "v1.20.0", {}, (4, 2)),
        (STRICT, "", "v1.20.0", FILE, None),
        (STRICT, "", "v1.20.0", {"RUNTIME_CONFIG_SOURCES": "command"}, (4, 2)),
        (STRICT, "", "v1.20.0", {"RUNTIME_CONFIG_SOURCE": "file=/host/etc/containerd/config.toml"}, None),
        (STRICT, "", "v1.20.0", {"RUNTIME_CONFIG_SOURCE": "file,command"}, None),
        (STRICT, "3", "v1.20.0", {}, (4, 3)),
        (STRICT, "4", "v1.20.0", {}, None),
        ("containerd://2.2.1", "2", "v1.20.0", {}, None),  # 2.2 accepts any version in a drop-in
        ("containerd://2.3.0", "2", "v1.20.0", {}, (4, 2)),
        ("containerd://2.3.5", "2", "v1.20.0", {}, None),  # the check was taken back
        ("containerd://1.7.28", "2", "v1.20.0", {}, None),
        ("cri-o://1.34.0", "", "v1.20.0", {}, None),
        (STRICT, "", "v1.17.8-ubuntu20.04", {}, None),  # before 1.18 it writes no drop-in
    ],
)
def test_containerd_ends_on_a_drop_in_of_a_higher_version_than_its_own_file(
    engine: str, file: str, toolkit: str, env: dict[str, str], refused: tuple[int, int] | None
) -> None:
    marks = {keys.CONTAINER_RUNTIME: engine, keys.CONTAINERD_CONFIG: file}
    image = f"x/container-toolkit:{toolkit}"
    pod = make_pod("toolkit-1", "toolkit", env=env, image=image, start="waits", phase="Pending", ready=False)
    world = make_world(annotations={k: v for k, v in marks.items() if v}, operands=("driver",), pods=(pod,))
    started, *last = operands.act(world)
    assert started == Annotate(pod, {keys.START: "granted"}, "starts")
    output = HIGHER.format(*refused) if refused else None
    assert last == ([NodeMeta("containerd", {}, {keys.RUNTIME_DOWN: output})] if output else [])


def test_a_node_stays_down_until_a_person_mends_it() -> None:
    assert container_engine.is_down(make_world(annotations={keys.RUNTIME_DOWN: "containerd: ..."}))
    assert not container_engine.is_down(make_world())


ON, OFF = ({"CDI_ENABLED": state} for state in ("true", "false"))
BY_CDI = {"DEVICE_LIST_STRATEGY": "cdi-annotations,cdi-cri"}  # as the operator sets it
BY_MOUNTS = {"DEVICE_LIST_STRATEGY": "volume-mounts"}
OLD, NEW, NEWER, CRIO = "containerd://1.6.20", "containerd://1.7.24", "containerd://2.0.0", "cri-o://1.31.0"


@pytest.mark.parametrize(
    ("engine", "more", "toolkit", "plugin", "runtime_class", "gives"),
    [
        ("", {}, ON, {}, "", True),  # the plugin of a chart that set no strategy
        (STRICT, {}, ON, {}, "", False),
        (STRICT, {}, ON, BY_CDI, "", True),
        (NEW, {}, ON, BY_CDI, "", True),  # the toolkit's container enables it
        (NEW, {}, None, BY_CDI, "", False),  # off by default in 1.7
        (NEW, {keys.CDI: "on"}, None, BY_CDI, "", True),  # by Ansible
        (NEWER, {}, None, BY_CDI, "", True),
        (CRIO, {}, None, BY_CDI, "", True),
        (OLD, {}, ON, BY_CDI, "", False),
        (OLD, {keys.CDI: "on"}, None, BY_CDI, "nvidia", False),  # NVIDIA's runtime knows no device either
        (OLD, {keys.DEFAULT_RUNTIME: "runc"}, None, BY_MOUNTS, "", False),  # own hosts with a second runtime
        (OLD, {keys.DEFAULT_RUNTIME: "runc"}, None, BY_MOUNTS, "nvidia", True),
        (NEWER, {keys.DEFAULT_RUNTIME: "runc"}, None, BY_MOUNTS, "", False),
        (OLD, {}, OFF, BY_MOUNTS, "", True),  # the toolkit's is the default then
        (OLD, {}, OFF, BY_MOUNTS, "kata", False),
        (OLD, {}, None, {}, "", True),  # nodes where it was made the default
    ],
)
def test_a_container_gets_its_gpu_if_the_runtime_understands_how_it_is_passed(
    engine: str,
    more: dict[str, str],
    toolkit: dict[str, str] | None,
    plugin: dict[str, str],
    runtime_class: str,
    gives: bool,
) -> None:
    pods = [make_pod("plugin", "device-plugin", env=plugin)]
    pods += [make_pod("toolkit", "toolkit", env=toolkit)] if toolkit is not None else []
    notes = more | ({keys.CONTAINER_RUNTIME: engine} if engine else {})
    has = make_pod(asks={keys.GPU: 1}, devices="GPU-0", runtime_class=runtime_class)
    world = make_world(annotations=notes, operands=(), pods=(*pods, has))
    assert container_engine.gives_gpus(world, has) is gives
    crash = Crash(has, "c0", "CUDA error: no CUDA-capable device is detected (100)")
    assert container_engine.act(world) == ([] if gives else [crash])
    has.crash = crash.message
    assert container_engine.act(world) == ([Recover(has)] if gives else [])


@pytest.mark.parametrize("strategy", [BY_MOUNTS, BY_CDI])
def test_the_gates_trial_ends_with_success_only_with_a_gpu(strategy: dict[str, str]) -> None:
    pod = make_pod(asks={keys.GPU: 1}, phase="Pending", trial=True)
    plugin = make_pod("device-plugin-1", "device-plugin", env=strategy)
    world = make_world(annotations={keys.CONTAINER_RUNTIME: OLD}, operands=("driver",), pods=(plugin, pod))
    world.configs[plugin.uid] = Config("label")
    (done,) = kubelet.act(world)
    if strategy == BY_CDI:
        assert done == Fail(pod, "no device file of a GPU (/dev/nvidia*)")
    else:
        assert isinstance(done, Annotate)
        assert done.annotations[keys.RUN_ONCE] == "true"


def test_without_its_plugin_a_node_changes_no_pod() -> None:
    has = make_pod(asks={keys.GPU: 1}, devices="GPU-0")
    assert container_engine.act(make_world(operands=(), pods=(has,))) == []
