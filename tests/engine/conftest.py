"""A separate small project for every test, run by the real engine with our language host."""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from lab.toolchain import Toolchain
from tests.build.aws_stacks import ROOT, own, stack

THREE_RESOURCES = """
import pulumi

class Part(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("test:parts:Part", name, {}, opts)
        self.register_outputs({})

part = pulumi.ResourceOptions(parent=Part("part"))
for name in "123":
    pulumi.Stash(name, input=name, opts=part)
"""


@dataclass
class Project:
    paths: Paths
    toolchain: Toolchain
    said: list[str] = field(default_factory=list)

    def program(self, source: str) -> None:
        folder = self.paths.root / "infra"
        folder.mkdir(exist_ok=True)
        (folder / "__main__.py").write_text(textwrap.dedent(source))

    def stack_file(self, content: str) -> Path:
        file = self.paths.root / "Pulumi.local.yaml"
        file.write_text(content)
        return file

    @property
    def engine(self) -> Engine:
        return Engine(self.paths, self.toolchain, say=self.said.append)


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Project:
    root = tmp_path / "check out"  # a space, as in some home folders
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
    made = Project(Paths(root, root / ".gpuform", tmp_path / "cache"), toolchain)
    made.program(THREE_RESOURCES)
    made.stack_file("# kept\nconfig:\n  tried:colour: blue\n")
    return made


def lock(folder: Path, pid: int, host: str) -> Path:
    """A lock file as the engine writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "0a1b.json"
    owner = {"pid": pid, "username": "ada", "hostname": host, "timestamp": "2026-01-02T03:04:05.678901234Z"}
    file.write_text(json.dumps(owner))
    return file


def aws_checkout(root: Path) -> Path:
    """A checkout with aws-dev's stack file, and a program without cloud requests."""
    (root / "infra").mkdir(parents=True)
    (root / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\nmain: infra/\n")
    content = {"config": {"gpuform:environment": stack("aws-dev")}}
    (root / "Pulumi.aws-dev.yaml").write_text(own(yaml.safe_dump(content)))
    (root / "infra" / "__main__.py").write_text(THREE_RESOURCES)
    (root / "toolchain").symlink_to(ROOT / "toolchain")
    return root
