"""One role on the hosts of a bed, run by the runner of users' runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.hosts.events import HostResult
from gpuform.hosts.runner import run
from tests.bed import Bed

ANSIBLE = Path(__file__).parents[2] / "ansible"
FACTS = ["!all", "!min", "distribution", "pkg_mgr", "platform", "virtual"]


class Role:
    """A role with its variables; ``play`` runs it on the bed and returns the only host's result."""

    def __init__(self, folder: Path, bed: Bed, name: str, **variables: Any) -> None:
        self.bed = bed
        self.variables = variables
        self._ansible = folder / "ansible"
        (self._ansible / "playbooks").mkdir(parents=True)
        (self._ansible / "roles").symlink_to(ANSIBLE / "roles")
        (self._ansible / "ansible.cfg").symlink_to(ANSIBLE / "ansible.cfg")
        plays = [{"name": "Play the role", "hosts": "all", "gather_subset": FACTS, "roles": [name]}]
        (self._ansible / "playbooks/role.yml").write_text(json.dumps(plays))

    def play(self, *, check: bool = False, **more: Any) -> HostResult:
        return only(run("role.yml", self.inventory(more), check=check, ansible=self._ansible).hosts)

    def inventory(self, more: Mapping[str, Any]) -> dict[str, Any]:
        inventory = self.bed.inventory()
        for variables in inventory["_meta"]["hostvars"].values():
            variables.update(self.variables | more)
        return inventory


def only(results: Mapping[str, HostResult]) -> HostResult:
    (result,) = results.values()
    return result
