"""The driver role's packages by source, distribution and branch; what has none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

pytestmark = pytest.mark.unit

ROLE = Path(__file__).parents[2] / "ansible/roles/nvidia_driver"
FACTS = {
    "Debian": {"os_family": "Debian", "distribution_version": "12.11", "distribution_major_version": "12"},
    "Ubuntu": {"os_family": "Debian", "distribution_version": "24.04", "distribution_major_version": "24"},
    "Rocky": {"os_family": "RedHat", "distribution_version": "9.6", "distribution_major_version": "9"},
}
REFUSED = ("Refuse a source that lacks what it needs", "Refuse two ways of installing")


class Role:
    """The role's variables on one host, templated as Ansible does."""

    def __init__(
        self, source: str, platform: str, version: str, lines: tuple[str, ...] = (), **more: Any
    ) -> None:
        loader = DataLoader()
        variables: dict[str, Any] = {}
        for part in ("defaults", "vars"):
            found = loader.load_from_file(str(ROLE / part / "main.yml"), trusted_as_template=True)
            variables |= found
        variables |= {
            "ansible_facts": {"distribution": platform, **FACTS[platform]},
            "inventory_hostname": "n1",
            "nvidia_driver_source": source,
            "nvidia_driver_version": version,
            "nvidia_driver_branch": version.split(".")[0],
            "nvidia_driver_fabricmanager": True,
            "__nvidia_driver_state": {"stdout_lines": list(lines)},
            **more,
        }
        self.templar = Templar(loader=loader, variables=variables)
        self.variables = variables

    @property
    def wanted(self) -> list[str]:
        found: list[str] = self.templar.template(self.variables["__nvidia_driver_wanted"])
        return found

    @property
    def refusal(self) -> str:
        """The first message of tasks/refuse.yml about packages; empty if nothing is refused."""
        for task in DataLoader().load_from_file(str(ROLE / "tasks/refuse.yml"), trusted_as_template=True):
            check = task.get("ansible.builtin.assert")
            if not check or not task["name"].startswith(REFUSED):
                continue
            variables = self.variables | task.get("vars", {})
            templar = Templar(loader=DataLoader(), variables=variables)
            asked = check["that"] if isinstance(check["that"], list) else [check["that"]]
            if not all(templar.evaluate_conditional(one) for one in asked):
                return str(templar.template(check["fail_msg"])).strip()
        return ""


FM = "nvidia-fabricmanager"
RUNFILE = {"nvidia_driver_runfile": {"url": "u", "sha256": "s"}}


@pytest.mark.parametrize(
    ("source", "platform", "version", "driver", "fabric"),
    [
        ("nvidia", "Debian", "570.133.20", "nvidia-driver-cuda", f"{FM}-570"),
        ("nvidia", "Debian", "580.95.05", "nvidia-driver-cuda", FM),
        ("nvidia", "Ubuntu", "570.133.20", "nvidia-headless-570-open", f"{FM}-570"),
        ("nvidia", "Ubuntu", "580.95.05", "nvidia-headless-580-open", FM),
        ("nvidia", "Ubuntu", "590.48.01", "nvidia-open", FM),
        ("nvidia", "Rocky", "470.256.02", "nvidia-driver-cuda", "nvidia-fabric-manager"),
        ("nvidia", "Rocky", "570.133.20", "nvidia-driver-cuda", "nvidia-fabric-manager"),
        ("nvidia", "Rocky", "580.95.05", "nvidia-driver-cuda", FM),
        ("distribution", "Ubuntu", "535.274.02", "nvidia-headless-535-server-open", f"{FM}-535"),
        ("distribution", "Ubuntu", "580.95.05", "nvidia-headless-580-server-open", f"{FM}-580"),
        ("distribution", "Ubuntu", "595.58.03", "nvidia-headless-595-server-open", f"{FM}-595"),
    ],
)
def test_names_depend_on_source_distribution_and_branch(
    source: str, platform: str, version: str, driver: str, fabric: str
) -> None:
    role = Role(source, platform, version)
    assert role.refusal == ""
    assert (role.wanted[0], role.wanted[-1]) == (driver, fabric)
    without = Role(source, platform, version, nvidia_driver_fabricmanager=False)
    assert without.wanted == role.wanted[:-1]


@pytest.mark.parametrize(
    ("source", "platform", "version", "more", "said"),
    [
        ("distribution", "Rocky", "580.95.05", {}, "driver 580 is known for Rocky 9 and "),
        ("distribution", "Ubuntu", "560.35.05", {}, "driver 560 is known for Ubuntu 24.04 and "),
        ("distribution", "Debian", "535.261.03", {}, "fabric manager 535 is known for Debian 12 "),
        ("nvidia", "Rocky", "450.248.02", {}, "fabric manager 450 is known for Rocky 9 and "),
        ("runfile", "Debian", "580.95.05", RUNFILE, "fabric manager 580 is known for Debian 12 "),
    ],
)
def test_what_has_no_package_is_refused_and_named_packages_are_taken(
    source: str, platform: str, version: str, more: dict[str, Any], said: str
) -> None:
    assert Role(source, platform, version, **more).refusal.startswith(f"n1: no package of {said}")
    named = {"nvidia_driver_packages": ["own-driver", "nvidia-fabricmanager-own"]}
    role = Role(source, platform, version, **more, **named)
    assert role.refusal == ""
    assert role.wanted == named["nvidia_driver_packages"]


def test_a_fabric_manager_that_is_there_in_the_drivers_version_needs_no_package() -> None:
    for found, fine in (("fabric 580.95.05", True), ("fabric 580.82.07", False)):
        role = Role("runfile", "Debian", "580.95.05", (found,), **RUNFILE)
        assert (role.refusal == "") is fine
        assert role.wanted == []


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("nvidia", "runfile installed", "a runfile has installed a driver here; take it off"),
        ("runfile", "package installed hold nvidia-driver-cuda 1", "packages have installed a driver here"),
    ],
)  # fmt: skip
def test_no_second_driver_is_laid_over_the_first(source: str, line: str, said: str) -> None:
    more = {**RUNFILE, "nvidia_driver_fabricmanager": False}
    assert Role(source, "Debian", "580.95.05", (line,), **more).refusal.startswith(f"n1: {said}")
    assert Role(source, "Debian", "580.95.05", **more).refusal == ""


def test_each_row_of_the_table_names_where_it_is_from() -> None:
    rows = yaml.safe_load((ROLE / "vars/main.yml").read_text())["__nvidia_driver_table"]
    assert rows
    assert all(row["from"] for row in rows)
