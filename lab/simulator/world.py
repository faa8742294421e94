"""What one node's operands see: the node, its pods, the cluster's operator, the configurations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.simulator import keys
from lab.simulator.claimed import Claim, Slice
from lab.simulator.hardware import GPUS, Gpu, parse_model
from lab.simulator.mig_geometry import Placed
from lab.simulator.objects import Node, Pod

Layout = dict[int, tuple[Placed, ...]]
"""MIG state: GPU index to its instances; a GPU that is missing has MIG switched off."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Facts that are the same for all nodes."""

    operator_installed: bool = False
    operator_running: bool = False
    nfd_installed: bool = False
    nfd_running: bool = False
    mig_default: str = ""
    is_real: bool = False
    """Whether NVIDIA's own operator and NFD are installed, which make the nodes' labels."""


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration as NVIDIA's types read it; ``label`` is the node label's value at that time."""

    label: str
    strategy: str = "none"
    data: Mapping[str, Any] = field(default_factory=dict)

    def serialize(self) -> str:
        """The form kept in the operand pod's annotation."""
        form = {"label": self.label, "strategy": self.strategy, "config": self.data}
        return json.dumps(form, sort_keys=True)

    @classmethod
    def parse(cls, serialized: str) -> Config:
        form = json.loads(serialized)
        return cls(form["label"], form["strategy"], form["config"])


@dataclass(frozen=True, slots=True)
class BrokenConfig:
    """An unusable configuration; ``manager``: the config manager fails, ``mount``: the volume is missing."""

    message: str
    manager: bool = False
    mount: bool = False


@dataclass(slots=True)
class World:
    """One node as its operands see it."""

    node: Node
    cluster: Cluster
    pods: list[Pod]
    configs: dict[str, Config | BrokenConfig] = field(default_factory=dict)
    """Per operand pod uid, for pods that read a configuration."""
    expired: frozenset[str] = frozenset()
    """Resources and DRA drivers that have been gone for longer than the kubelet's grace period."""
    published: Slice | None = None
    """The ResourceSlice that the DRA driver has published for this node."""
    features: Mapping[tuple[str, str], Mapping[str, str]] = field(default_factory=dict)
    """Labels of the published NodeFeature objects, by namespace and name."""
    claims: tuple[Claim, ...] = ()
    """Claims that hold devices of this node."""

    @property
    def gpu(self) -> Gpu | None:
        return gpu_model(self.node.annotations)

    @property
    def device(self) -> str:
        """PCI device id, hexadecimal, lower case."""
        return self.node.annotations.get(keys.GPU_ID, "").lower().partition(":")[2]

    @property
    def gpus(self) -> int:
        """Number of GPUs; 0 if the model is unknown."""
        return int(self.node.annotations.get(keys.GPU_COUNT, "1")) if self.gpu else 0

    @property
    def layout(self) -> Layout:
        return parse_layout(self.node.annotations.get(keys.MIG_LAYOUT, "{}"))

    def pods_of(self, operand: str) -> list[Pod]:
        """The operand's pods on this node, including terminating ones."""
        return [pod for pod in self.pods if pod.operand == operand]

    def running(self, operand: str) -> Pod | None:
        return next((pod for pod in self.pods_of(operand) if pod.running), None)

    def config(self, operand: str) -> Config | None:
        """Configuration of the operand's running pod; None without a usable one."""
        pod = self.running(operand)
        config = self.configs.get(pod.uid) if pod else None
        return config if isinstance(config, Config) else None

    def relabel(self, operands: Iterable[str], old_value: str, new_value: str) -> dict[str, str | None]:
        """The operator's labels of these operands with ``old_value``, given ``new_value``."""
        names = (f"{keys.DEPLOY}{operand}" for operand in operands)
        return {name: new_value for name in names if self.node.labels.get(name) == old_value}

    @property
    def consumers(self) -> list[Pod]:
        """Pods that request GPUs and are not finished."""
        return [pod for pod in self.pods if pod.requests and not pod.finished]


def gpu_model(annotations: Mapping[str, str]) -> Gpu | None:
    """The GPU model of a node; None without a GPU, or if the table lacks the model."""
    if declared := annotations.get(keys.GPU_MODEL):
        return parse_model(declared)
    vendor, _, device = annotations.get(keys.GPU_ID, "").lower().partition(":")
    return GPUS.get(device) if vendor == "10de" else None


def parse_layout(stored: str) -> Layout:
    return {
        int(index): tuple((name, int(start)) for name, _, start in (s.partition("@") for s in placed))
        for index, placed in json.loads(stored).items()
    }


def render_layout(layout: Layout) -> str:
    stored = {str(i): [f"{name}@{start}" for name, start in layout[i]] for i in sorted(layout)}
    return json.dumps(stored)
