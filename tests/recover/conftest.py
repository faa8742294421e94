"""A project of its own: runs offline, so nothing is made at AWS, while `recover` asks moto what is there."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import Engine, Result
from gpuform.engine.places import Places
from gpuform.paths import Paths
from gpuform.recover import Plan, Stack, Told, carry_out, find
from gpuform.toolchain import Toolchain

STACK = "labs"


@dataclass
class Project:
    """A checkout with one program; ``said`` is what its engine and its recovery printed."""

    paths: Paths
    toolchain: Toolchain
    said: list[str] = field(default_factory=list)

    def program(self, source: str) -> None:
        folder = self.paths.root / "infra"
        folder.mkdir(exist_ok=True)
        (folder / "__main__.py").write_text(textwrap.dedent(source))

    @property
    def engine(self) -> Engine:
        return Engine(self.paths, self.toolchain, say=self.said.append, offline=True)

    @property
    def stack(self) -> Stack:
        return Stack(STACK, self.paths, self.engine, at_aws=True)

    def run(self, operation: str) -> Result:
        result: Result = getattr(self.engine, operation)(STACK, on_event=lambda event: None)
        return result

    def find(self, told: Told | None = None, **more: Any) -> Plan:
        return find(self.stack, told, **more)

    def carry_out(self, plan: Plan) -> None:
        carry_out(self.stack, plan, self.said.append)

    def state(self) -> dict[str, Any]:
        """As it is, without the repairs that a run begins with."""
        return self.engine.deployment(self.stack.env, STACK)

    def edit(self, change: Callable[[dict[str, Any]], None], backend: Path | None = None) -> None:
        """Change the state in its file: the engine's own way there drops what is pending."""
        file = Places(self.paths, offline=True).checkpoint("tried", STACK)
        file = backend / ".pulumi" / "stacks" / "tried" / file.name if backend else file
        content = json.loads(file.read_text())
        change(content["checkpoint"]["latest"])
        file.write_text(json.dumps(content))
        file.with_name(file.name + ".attrs").unlink(missing_ok=True)

    def interrupted(self, making: Iterable[str], never_begun: Iterable[str] = ()) -> None:
        """The state of a run that was killed while it made these; the names are those of the program."""

        def change(deployment: dict[str, Any]) -> None:
            pending, kept = [], []
            for one in deployment["resources"]:
                name = one["urn"].rpartition("::")[2]
                if name in making:
                    resource = {key: item for key, item in one.items() if key not in ("id", "outputs")}
                    pending.append({"type": "creating", "resource": resource})
                elif name not in never_begun:
                    kept.append(one)
            deployment |= {"resources": kept, "pending_operations": pending}

        self.edit(change)

    def ids(self) -> dict[str, str]:
        """Ids in the state by the resources' names."""
        resources = self.state()["deployment"]["resources"]
        return {one["urn"].rpartition("::")[2]: str(one.get("id")) for one in resources}


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Project:
    root = tmp_path / "checkout"
    root.mkdir()
    (root / "Pulumi.yaml").write_text("name: tried\nruntime: python\nmain: infra/\n")
    (root / f"Pulumi.{STACK}.yaml").write_text("config: {}\n")
    return Project(Paths(root, root / ".gpuform", tmp_path / "cache"), toolchain)
