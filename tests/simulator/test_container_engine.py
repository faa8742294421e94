"""What the toolkit writes into containerd's configuration, and which containerd ends because of it."""

from __future__ import annotations

import pytest

from gpuform.simulator import container_engine, keys, operands
from gpuform.simulator.actions import Annotate, NodeMeta
from tests.simulator.conftest import MakePod, MakeWorld

pytestmark = pytest.mark.unit

FILE = {"RUNTIME_CONFIG_SOURCE": "file"}
HIGHER = "containerd: drop-in config version {} higher than root config version {}"


@pytest.mark.parametrize(
    ("engine", "file", "toolkit", "env", "refused"),
    [
        ("", "", "v1.20.0", {}, (4, 2)),  # a node of which nothing is said is one that the default breaks
        ("", "", "v1.20.0", FILE, None),
        ("", "", "v1.20.0", {"RUNTIME_CONFIG_SOURCES": "command"}, (4, 2)),
        ("", "", "v1.20.0", {"RUNTIME_CONFIG_SOURCE": "file=/host/etc/containerd/config.toml"}, None),
        ("", "", "v1.20.0", {"RUNTIME_CONFIG_SOURCE": "file,command"}, None),
        ("", "3", "v1.20.0", {}, (4, 3)),
        ("", "4", "v1.20.0", {}, None),
        ("containerd://2.2.1", "2", "v1.20.0", {}, None),  # 2.2 accepts any version in a drop-in
        ("containerd://2.3.0", "2", "v1.20.0", {}, (4, 2)),
        ("containerd://2.3.5", "2", "v1.20.0", {}, None),  # the check was taken back
        ("containerd://1.7.28", "2", "v1.20.0", {}, None),
        ("cri-o://1.34.0", "", "v1.20.0", {}, None),
        ("", "", "v1.17.8-ubuntu20.04", {}, None),  # before 1.18 it writes no drop-in
    ],
)
def test_containerd_ends_on_a_drop_in_of_a_higher_version_than_its_own_file(
    make_world: MakeWorld,
    make_pod: MakePod,
    engine: str,
    file: str,
    toolkit: str,
    env: dict[str, str],
    refused: tuple[int, int] | None,
) -> None:
    marks = {keys.CONTAINER_RUNTIME: engine, keys.CONTAINERD_CONFIG: file}
    image = f"x/container-toolkit:{toolkit}"
    pod = make_pod("toolkit-1", "toolkit", env=env, image=image, start="waits", phase="Pending", ready=False)
    world = make_world(annotations={k: v for k, v in marks.items() if v}, operands=("driver",), pods=(pod,))
    started, *last = operands.act(world)
    assert started == Annotate(pod, {keys.START: "granted"}, "starts")
    said = HIGHER.format(*refused) if refused else None
    assert last == ([NodeMeta("containerd", {}, {keys.RUNTIME_DOWN: said})] if said else [])


def test_a_node_stays_down_until_a_person_mends_it(make_world: MakeWorld) -> None:
    assert container_engine.down(make_world(annotations={keys.RUNTIME_DOWN: "containerd: ..."}))
    assert not container_engine.down(make_world())
