"""A small Pulumi project with hosts that are this machine under several names, and its own playbooks."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.engine import Engine
from lab.toolchain import Toolchain

PROGRAM = """
import pathlib
import pulumi
from components.custom_resources import HostConfiguration, HostConfigurationArgs

given = pulumi.Config().require_object("given")
text = pathlib.Path(given["inventory"]).read_text()
inventory = pulumi.Output.secret(text) if given.get("secret") else text
args = HostConfigurationArgs(inventory=inventory, content=given["content"])
on = HostConfiguration("hosts", args)
pulumi.export("hosts", on.hosts)
"""


@dataclass
class Project:
    paths: Paths
    toolchain: Toolchain
    messages: list[str] = field(default_factory=list)
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def host(self, name: str, **variables: Any) -> None:
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        self.hosts[name] = local | variables

    def playbook(self, *tasks: dict[str, Any], **play: Any) -> None:
        file = self.paths.root / "ansible" / "playbooks" / "site.yml"
        file.parent.mkdir(parents=True, exist_ok=True)
        plays = [{"name": "Try", "hosts": "all", "gather_facts": False, **play, "tasks": list(tasks)}]
        file.write_text(yaml.safe_dump(plays, sort_keys=False))

    def declare(self, content: str = "1", **given: Any) -> None:
        inventory = {
            "_meta": {"hostvars": self.hosts},
            "all": {"children": ["gpu"]},
            "gpu": {"hosts": sorted(self.hosts)},
        }
        file = self.paths.root / "inventory.json"
        file.write_text(json.dumps(inventory))
        self.settings = {"inventory": str(file), "content": content, **given}
        stack = {"config": {"gpuform:given": self.settings}}
        (self.paths.root / "Pulumi.local.yaml").write_text(yaml.safe_dump(stack))

    @property
    def engine(self) -> Engine:
        return Engine(self.paths, self.toolchain, say=self.messages.append)

    @property
    def state(self) -> str:
        files = (self.paths.state / "engine").rglob("*.json")
        return "\n".join(file.read_text(errors="replace") for file in files if file.is_file())

    def outputs(self) -> Any:
        export = json.loads(self._checkpoint().read_text())["checkpoint"]["latest"]["resources"]
        resource = next(item for item in export if item["type"] == "gpuform:hosts:HostConfiguration")
        return resource["outputs"]["hosts"]

    def _checkpoint(self) -> Path:
        return next((self.paths.state / "engine").rglob("stacks/**/local.json"))


@pytest.fixture
def project(tmp_path: Path, toolchain: Toolchain) -> Project:
    root = tmp_path / "checkout"
    (root / "infra" / "incluster").mkdir(parents=True)  # the mark of a checkout: its playbooks are used
    (root / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\nmain: infra/\n")
    (root / "infra" / "__main__.py").write_text(PROGRAM)
    created = Project(Paths(root, root / ".gpuform", tmp_path / "cache"), toolchain)
    created.host("one")
    created.host("two")
    created.playbook(written())
    created.declare()
    (root / "on").mkdir()
    return created


def written(content: str = "made\n", **more: Any) -> dict[str, Any]:
    dest = "{{ playbook_dir }}/../../on/{{ inventory_hostname }}"
    copy = {"dest": dest, "content": content, "mode": "0600"}
    return {"name": "Write", "ansible.builtin.copy": copy, **more}
