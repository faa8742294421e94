"""Nodes and pods for unit tests, the blocks of NVIDIA's configuration that they have, and scrapes.

A scrape has no cluster: a store with one node, a clock that tests set, and the text parsed.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from lab.simulator import device_plugin, keys
from lab.simulator.api import Api
from lab.simulator.counters import KNOWN
from lab.simulator.dcgm.exporter import Exporters
from lab.simulator.faults import Fault, render
from lab.simulator.objects import Node, Pod, Template
from lab.simulator.store import Store
from lab.simulator.world import Cluster, Config, World

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
SEVEN = [f"1g.5gb@{i}" for i in range(7)]
CERN = ["2g.10gb@0", "2g.10gb@2", "3g.20gb@4"]
RUNNING = Cluster(True, True, True, True, "all-disabled")
OPERANDS = ("nfd-worker", "driver", "toolkit", "device-plugin", "gfd", "dcgm-exporter", "mig-manager")
IMAGES = {"driver": "simulated.gpuform.io/driver:595.91.07"}


def make_pod(name: str = "tf-gpu", operand: str = "", **fields: Any) -> Pod:
    """A running pod; ``asks`` is {resource: count}, one container for each."""
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


def make_world(
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
    """A node with running operands; ``gpu`` is a PCI device id, ``sharing`` has NVIDIA's format."""
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
        make_pod(
            f"{operand}-1",
            operand,
            loaded=read.serialize(),
            env={"MIG_STRATEGY": env} if env else {},
            image=f"x/driver:{driver}" if operand == "driver" else "x:v1",
        )
        for operand in operands
    ]
    configs = {f"uid-{operand}-1": read for operand in ("device-plugin", "gfd", "mps-control-daemon")}
    return World(node, cluster, [*running, *pods], dict(configs))


def cut(*layouts: list[str] | None) -> dict[str, str]:
    """Annotations of a node with these instances on its GPUs; None: MIG is off."""
    placed = {str(i): layout for i, layout in enumerate(layouts) if layout is not None}
    return {keys.MIG_LAYOUT: json.dumps(placed)}


def sliced(replicas: int, name: str = GPU, rename: bool = True, **more: Any) -> dict[str, Any]:
    entry = {"name": name, "devices": "all", "replicas": replicas}
    entry |= {"rename": f"{name}.shared"} if rename else {}
    return {"sharing": {"timeSlicing": {**more, "resources": [entry]}}, "strategy": "time-slicing"}


def mps(replicas: int, env: str = "none") -> dict[str, Any]:
    resources = [{"name": GPU, "devices": "all", "replicas": replicas}]
    return {"sharing": {"mps": {"resources": resources}}, "strategy": "mps", "env": env}


START = 1_800_000_000.0
_SAMPLE = re.compile(r"^(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Bench:
    def __init__(self, world: World) -> None:
        self.now = START
        api: Api = None  # type: ignore[assignment]  # a store that follows nothing
        self.store = Store(api, lambda _: None)
        self.exporters = Exporters(self.store, lambda: self.now)
        self.world, name = world, world.node.name
        self.store.nodes[name] = world.node
        self.store.on_node[name] = {(pod.namespace, pod.name): pod for pod in world.pods}

    def with_every_counter(self) -> Bench:
        """The same, with a mounted csv of all fields that the simulator has."""
        (pod,) = self.world.pods_of("dcgm-exporter")
        pod.template = replace(pod.template, config_map="all")
        csv = "".join(f"{name}, gauge, of a test\n" for name in sorted(KNOWN))
        self.store.config_maps["gpu-operator", "all"] = {"dcgm-metrics.csv": csv}
        return self

    def broken(self, *faults: Fault) -> None:
        notes = self.world.node.annotations
        notes.pop(keys.FAULTS, None)
        notes |= {keys.FAULTS: text} if (text := render(faults)) else {}

    def scrape(self, after: float = 0.0) -> Series:
        """All samples of the node's exporter, ``after`` seconds later."""
        self.now += after
        status, text = self.exporters.scrape(self.world.node.name)
        assert status == 200, text
        return Series(text)


def working(load: str = "1") -> tuple[Bench, Pod]:
    """An A100 with one pod, which keeps it that busy."""
    world = make_world(gpu="20b0")
    pod = make_pod("p", asks={GPU: 1}, devices=device_plugin.gpu_uuid(world, 0), load=load)
    world.pods.append(pod)
    return Bench(world), pod


class Series:
    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: list[tuple[str, dict[str, str], float]] = []
        for line in text.splitlines():
            if not line.startswith("#"):
                result = _SAMPLE.match(line)
                assert result, line
                labels = dict(_LABEL.findall(result["labels"]))
                self.samples.append((result["name"], labels, float(result["value"])))

    def of(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of a series, filtered by ``labels``; DCGM prefixes may be omitted."""
        return [
            (found, value)
            for series, found, value in self.samples
            if series in (name, f"DCGM_FI_DEV_{name}", f"DCGM_FI_PROF_{name}", f"DCGM_EXP_{name}")
            and labels.items() <= found.items()
        ]

    def one(self, name: str, **labels: str) -> float:
        ((_, value),) = self.of(name, **labels)
        return value

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self.samples}
