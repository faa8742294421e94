"""Nodes and pods for unit tests, and a control plane with the simulated operator for the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lab.simulator import keys
from lab.simulator.objects import Node, Pod, Template
from lab.simulator.world import Cluster, Config, World
from tests.lab.simulator.site import Site, opened

RUNNING = Cluster(True, True, True, True, "all-disabled")
OPERANDS = ("nfd-worker", "driver", "toolkit", "device-plugin", "gfd", "dcgm-exporter", "mig-manager")
IMAGES = {"driver": "simulated.gpuform.io/driver:595.91.07"}

MakePod = Callable[..., Pod]
MakeWorld = Callable[..., World]


def _pod(name: str = "tf-gpu", operand: str = "", **fields: Any) -> Pod:
    asks = fields.pop("asks", {})
    requests = tuple((f"c{i}", False, ((k, v),)) for i, (k, v) in enumerate(asks.items()))
    template = Template(
        containers=((operand or "main", fields.pop("image", IMAGES.get(operand, "x:v1"))),),
        init=(),
        env=tuple(fields.pop("env", {}).items()),
        config_map=fields.pop("config_map", ""),
        after=fields.pop("after", ()),
        tolerations=(),
    )
    plain = {
        "namespace": "gpu-operator" if operand else "default",
        "name": name,
        "uid": f"uid-{name}",
        "version": 1,
        "node": "node-0",
        "owner": ("DaemonSet", operand, "uid-ds"),
        "created": "2024-10-15T11:41:00Z",
        "phase": "Running",
        "ready": True,
        "deleting": False,
        "crash": "",
        "start": "granted" if operand else "",
        "loaded": "",
        "devices": "",
    }
    return Pod(**{**plain, "operand": operand, "template": template, "requests": requests, **fields})


def _world(
    gpu: str = "1eb8",
    count: int = 1,
    sharing: dict[str, Any] | None = None,
    strategy: str = "none",
    env: str = "mixed",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    pods: tuple[Pod, ...] = (),
    operands: tuple[str, ...] = OPERANDS,
    capacity: dict[str, int] | None = None,
    config: dict[str, Any] | None = None,
    driver: str = "595.91.07",
    cluster: Cluster = RUNNING,
) -> World:
    base = {keys.GPU_ID: f"10de:{gpu}", keys.GPU_COUNT: str(count)} if gpu else {}
    node = Node(
        name="node-0",
        uid="uid-node-0",
        version=1,
        labels={keys.PCI_PRESENT: "true", **(labels or {})},
        annotations={**base, **(annotations or {})},
        capacity=dict(capacity or {}),
        allocatable=dict(capacity or {}),
    )
    data: dict[str, Any] = {"version": "v1", **(config or {})}
    if sharing:
        data["sharing"] = sharing
    read = Config("label", strategy, data)
    running = [
        _pod(
            f"{operand}-1",
            operand,
            loaded=read.stored(),
            env={"MIG_STRATEGY": env} if env else {},
            image=f"x/driver:{driver}" if operand == "driver" else "x:v1",
        )
        for operand in operands
    ]
    configs = {f"uid-{operand}-1": read for operand in ("device-plugin", "gfd", "mps-control-daemon")}
    return World(node, cluster, [*running, *pods], dict(configs))


@pytest.fixture
def make_pod() -> MakePod:
    """A running pod; ``asks`` is {resource: count}, one container for each."""
    return _pod


@pytest.fixture
def make_world() -> MakeWorld:
    """A node with running operands; ``gpu`` is a PCI device id, ``sharing`` has NVIDIA's format."""
    return _world


@pytest.fixture(scope="module")
def site(simulated_plane: Any) -> Iterator[Site]:
    """A control plane with one CPU node and the operator; a test makes the configurations."""
    with opened(simulated_plane) as found:
        yield found
