"""An AWS stack offline: the real program and engine; an embedded control plane with simulated nodes for EKS.

Nodes of elastic pools have their startup taint, and the readiness gate's own program removes it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuform.engine import Engine, Result
from infra.config import load
from infra.model.environment import Environment
from lab.plane import ControlPlane
from lab.rehearse import nodes
from lab.rehearse.program import Gate
from lab.toolchain import Toolchain
from tests.conftest import Kubectl
from tests.journey.conftest import HERE, Checkout, make_checkout


@dataclass
class World:
    checkout: Checkout
    stack: str
    tools: Toolchain
    said: list[str] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        return Engine(self.checkout.paths, self.tools, say=self.said.append, offline=True)

    @property
    def file(self) -> Path:
        return self.checkout.paths.root / f"Pulumi.{self.stack}.yaml"

    @property
    def environment(self) -> Environment:
        return load(self.file)

    def run(self, operation: str) -> Result:
        result: Result = getattr(self.engine, operation)(self.stack, on_event=lambda event: None)
        return result

    @property
    def kubectl(self) -> Kubectl:
        return self.checkout.kubectl

    def nodes(self) -> None:
        """Create the nodes that node groups and Karpenter would make for the current stack file."""
        if nodes.simulated_nodes(self.environment).by_cloud:
            nodes.apply_nodes(self.environment, self.checkout.paths, self.tools, waiting=True)

    @contextmanager
    def changed(self, edit: Callable[[dict[str, Any]], Any]) -> Iterator[None]:
        before = self.file.read_text()
        content = yaml.safe_load(before)
        edit(content["config"]["gpuform:environment"])
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))
        try:
            yield
        finally:
            self.file.write_text(before)


@contextmanager
def world(folder: Path, stack: str, environment: dict[str, Any] | None = None) -> Iterator[World]:
    """A control plane with the nodes of the stack, and a running readiness gate.

    The stack is the committed one of this name, or one with another environment.
    """
    checkout = make_checkout(folder, stack)
    tools = Toolchain(checkout.paths)
    plane = ControlPlane(checkout.paths, tools)
    made = World(checkout, stack, tools)
    if environment is None:
        shutil.copy(HERE.root / made.file.name, made.file)
    else:
        made.file.write_text(yaml.safe_dump({"config": {"gpuform:environment": environment}}))
    gate = folder / "gate"
    gate.mkdir()
    try:
        plane.start()
        if made.environment.monitoring:
            plane.define_monitoring_kinds()
        made.nodes()
        with Gate(checkout.paths.kubeconfig, gate).supervisor():
            yield made
    finally:
        plane.stop(delete=True)
    assert not checkout.running()
