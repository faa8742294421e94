"""A small AWS stack played offline, and the controllers that its destroy needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import load
from lab.plane import ControlPlane
from lab.rehearse import nodes
from lab.toolchain import Toolchain
from tests.fakes.moto import Account
from tests.journey.aws_world import World
from tests.journey.conftest import HERE, Checkout, make_checkout
from tests.stack.destroy.played_karpenter import PlayedKarpenter

STACK = "aws-small"
POOL = "g4dn-shared"


class Elsewhere(Checkout):
    """Its control plane stands for a cluster at AWS: no command starts it, and none deletes it."""

    def command(self, *args: str) -> list[str]:
        patched = "from gpuform.cli import change; change.runs_here = lambda *_: False"
        return [sys.executable, "-c", f"{patched}; from gpuform.cli.main import main; main()", *args]


@dataclass
class Small(World):
    """aws-dev with one pod, in its own checkout. ``made`` is its state after the last `up`."""

    made: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def plane(self) -> ControlPlane:
        return ControlPlane(self.checkout.paths, self.tools)

    def up(self) -> None:
        """Everything that the stack file declares, on a plane that a test may have stopped."""
        self.plane.start()
        self.plane.define_monitoring_kinds()  # as `gpuform local nodes` does
        nodes.apply_nodes(load(self.file), self.checkout.paths, self.tools)
        self.run("up")
        self.made = self.engine.export(STACK)

    def destroy(self, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        return self.checkout.gpuform("destroy", STACK, "--offline", *words, code=code)

    def resources(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.engine.export(STACK)["deployment"].get("resources") or []
        return found

    def ours(self) -> list[str]:
        def names(*words: str) -> list[str]:
            return self.kubectl("get", *words, "-o", "name").split()

        crds = {crd.partition("/")[2].partition(".")[0] for crd in names("crds")}
        kinds = crds & {"nodepools", "nodeclaims", "nodeoverlays", "ec2nodeclasses"}
        spaces = [one for one in names("namespaces") if one.endswith(("/examples", "/gpu-operator"))]
        nodes = names("nodes", "-l", "karpenter.sh/nodepool,!gpuform.io/pool")
        secrets = names("secrets", "-A", "-l", "owner=helm")
        return [*(one for kind in sorted(kinds) for one in names(kind)), *spaces, *nodes, *secrets]

    def karpenter(self, account: Account) -> PlayedKarpenter:
        return PlayedKarpenter(
            self.checkout.paths.kubeconfig, self.kubectl, account.ec2, account.karpenter_tags
        )


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    """A control plane, and a checkout with the stack; nothing is up between tests."""
    checkout = Elsewhere(make_checkout(tmp_path_factory.mktemp("small"), STACK).paths)
    made = Small(checkout, STACK, Toolchain(checkout.paths))
    content = yaml.safe_load((HERE.root / "Pulumi.aws-dev.yaml").read_text())
    environment = content["config"]["gpuform:environment"]
    environment["name"] = STACK
    environment["workloads"][0]["replicas"] = 1
    made.file.write_text(yaml.safe_dump(content))
    try:
        made.plane.start()
        yield made
    finally:
        made.plane.stop(delete=True)
    assert not checkout.running()


@pytest.fixture
def account(moto: str) -> Account:
    return Account(STACK)


def answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def written(folder: Path, name: str, *objects: dict[str, Any]) -> str:
    file = folder / name
    file.write_text(yaml.safe_dump_all(objects))
    return str(file)
