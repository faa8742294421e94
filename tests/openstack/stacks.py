"""The cluster half of a stack, run by the real engine against the real Magnum API: no nodes, no Kubernetes.

The program is only the stack's cluster half; the platform half needs an API server.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.paths import Paths
from gpuform.cli.settling import run_up
from gpuform.clouds import RECOVERIES
from gpuform.engine import Engine, EngineFailure, Result
from gpuform.stack.recover import Stack, run_to_the_end
from lab.toolchain import Toolchain
from tests.journey.conftest import make_checkout
from tests.openstack.world import TEMPLATE, World

STACK = "research"
_PROGRAM = """\
import pulumi

from infra import openstack
from infra.config import parse

on = openstack.cluster(parse(pulumi.Config("gpuform").require_object("environment")))
pulumi.export("kubeconfig", on.kubeconfig)
"""

T4: dict[str, Any] = {"name": "gpu-t4", "machine": "g2.5xlarge", "nodes": 1}
V100S: dict[str, Any] = {"name": "gpu-v100s", "machine": "g3.xlarge", "nodes": 2}
ENVIRONMENT: dict[str, Any] = {
    "name": "research",
    "cluster": {
        **{"kind": "openstack", "template": TEMPLATE, "version": "1.30", "keypair": "gpu-admins"},
        **{"masters": {"nodes": 1}, "workers": {"nodes": 1}, "timeout_minutes": 5},
    },
    "pools": [T4],
}
"""CERN's two commands."""


@dataclass
class Half:
    world: World
    paths: Paths
    said: list[str] = field(default_factory=list)

    @property
    def engine(self) -> Engine:
        """With the toolchain's provider: the official one or the built one."""
        return Engine(self.paths, Toolchain(self.paths), say=self.said.append)

    @property
    def file(self) -> Path:
        return self.paths.root / f"Pulumi.{STACK}.yaml"

    @property
    def environment(self) -> dict[str, Any]:
        found: dict[str, Any] = yaml.safe_load(self.file.read_text())["config"]["gpuform:environment"]
        return found

    def declare(self, environment: dict[str, Any]) -> None:
        declared = copy.deepcopy(environment)
        declared["cluster"]["cloud"] = self.world.cloud
        content = {"config": {"gpuform:environment": declared}}
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))

    def change(self, edit: Callable[[dict[str, Any]], Any]) -> None:
        environment = self.environment
        edit(environment)
        self.declare(environment)

    def run(self, operation: str) -> Result:
        engine = self.engine
        if operation == "up":
            return run_up(engine, STACK, self.paths, True, self.said.append)

        def run() -> Result:
            result: Result = getattr(engine, operation)(STACK, on_event=lambda event: None)
            return result

        try:
            return run()
        except EngineFailure as failure:
            return run_to_the_end(
                Stack(STACK, self.paths, engine, RECOVERIES), failure, run, self.said.append
            )


def half(world: World, folder: Path, environment: dict[str, Any] | None = None) -> Half:
    """A checkout in ``folder`` that declares CERN's cluster or ``environment``; not yet run."""
    paths = make_checkout(folder).paths
    project = (paths.root / "Pulumi.yaml").read_text().replace("main: infra/", "main: half/")
    (paths.root / "Pulumi.yaml").write_text(project)
    (paths.root / "half").mkdir()
    (paths.root / "half/__main__.py").write_text(_PROGRAM)
    made = Half(world, paths)
    made.declare(environment or ENVIRONMENT)
    return made
