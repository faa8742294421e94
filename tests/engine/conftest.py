"""A separate small project for every test, run by the real engine with our language host."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from lab.toolchain import Toolchain

TWO_COMPONENTS = """
import pulumi

class Part(pulumi.ComponentResource):
    def __init__(self, name, opts=None):
        super().__init__("test:parts:Part", name, {}, opts)
        self.register_outputs({})

first = Part("first")
Part("second", pulumi.ResourceOptions(parent=first))
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
    made.program(TWO_COMPONENTS)
    made.stack_file("# kept\nconfig:\n  tried:colour: blue\n")
    return made
