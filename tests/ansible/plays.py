"""One role on the hosts of a bed, run by the runner of users' runs; and upgrades of the driver."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuform.hosts.events import HostResult
from gpuform.hosts.runner import run
from tests.bed import Bed, Host, stack

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
        return single_result(run("role.yml", self.inventory(more), check=check, ansible=self._ansible).hosts)

    def refused(self, cases: Mapping[str, tuple[Mapping[str, Any], str]]) -> None:
        """Play the role once with every case on the only host; assert that each is refused with its message.

        A case has variables and a part of the message; its name is the host's name in the inventory.
        """
        inventory = self.inventory({})
        (variables_of_host,) = inventory["_meta"]["hostvars"].values()
        hosts = {name: variables_of_host | variables for name, (variables, _) in cases.items()}
        inventory |= {"_meta": {"hostvars": hosts}, "kube_node": {"hosts": list(hosts)}, "gpu": {"hosts": []}}
        results = run("role.yml", inventory, ansible=self._ansible).hosts
        for name, (_, message) in cases.items():
            assert message in results[name].message, f"{name}: {results[name].message}"

    def inventory(self, more: Mapping[str, Any]) -> dict[str, Any]:
        inventory = self.bed.inventory()
        for variables in inventory["_meta"]["hostvars"].values():
            variables.update(self.variables | more)
        return inventory


def single_result(results: Mapping[str, HostResult]) -> HostResult:
    (result,) = results.values()
    return result


OLD, NEW = "580.82.07", "580.95.05"
BOOT = "cut -d' ' -f22 /proc/1/stat"  # boot_id is the machine's around the bed, and never changes


def driver_inventory(bed: Bed, version: str, names: Sequence[str] = (), **more: Any) -> dict[str, Any]:
    """The inventory of all or some of the bed's hosts, with one T4 each and driver ``version``."""
    hosts = list(names) or [host.name for host in bed.hosts]
    pools = [{"name": "t4", "hosts": hosts, "gpu": {"models": ["T4"], "count": 1}}]
    driver = {"source": "nvidia", "version": version, "repository": bed.repository.settings}
    inventory = stack.listing(bed, pools, driver=driver)
    for host in inventory["_meta"]["hostvars"].values():
        host.update(nvidia_driver_boot_time_command=BOOT, **more)
    return inventory


def upgrade_driver(inventory: dict[str, Any], **options: Any) -> Any:
    return run("upgrade-driver.yml", inventory, **options)


def boot_time(host: Host) -> str:
    """A value that changes at every boot of the host."""
    return host.out(BOOT)


def driver_version(host: Host) -> str:
    return host.out("nvidia-smi --query-gpu=driver_version --format=csv,noheader")
