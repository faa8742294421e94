"""Playbooks run for real by ansible-playbook, on this machine under several names."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.checkout.paths import Paths
from gpuform.hosts import Event, Outcome, run

HERE = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}


@dataclass
class Project:
    folder: Path
    hosts: dict[str, dict[str, Any]] = field(default_factory=dict)
    groups: dict[str, list[str]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    @property
    def paths(self) -> Paths:
        return Paths(root=self.folder, state=self.folder / "state", cache=self.folder / "cache")

    @property
    def runs(self) -> Path:
        return self.paths.state / "hosts"

    @property
    def inventory(self) -> dict[str, Any]:
        groups = {"gpu": sorted(self.hosts), **self.groups}
        return {
            "_meta": {"hostvars": self.hosts},
            "all": {"children": sorted([*groups, "ungrouped"])},
            **{name: {"hosts": members} for name, members in groups.items()},
        }

    def host(self, name: str, **variables: Any) -> None:
        self.hosts[name] = {**HERE, **variables}

    def write(self, *tasks: dict[str, Any], name: str = "site.yml", **play: Any) -> None:
        file = self.folder / "ansible" / "playbooks" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        plays = [{"name": "Try", "hosts": "all", "gather_facts": False, **play, "tasks": list(tasks)}]
        file.write_text(yaml.safe_dump(plays, sort_keys=False))

    def run(self, *, limit: Sequence[str] = (), **more: Any) -> Outcome:
        more = {"on_event": self.events.append, "ansible": self.folder / "ansible", **more}
        return run("site.yml", self.inventory, limit=limit, paths=self.paths, **more)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.host("one")
    made.host("two")
    return made


def command(name: str, words: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "ansible.builtin.command": words, **more}


def file(name: str, path: Path | str, content: str = "made\n", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "ansible.builtin.copy": {"dest": str(path), "content": content, "mode": "0600"},
        **more,
    }
