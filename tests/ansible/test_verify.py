"""``gpuform hosts verify`` on a booted host: passes once prepared, fails for each sabotage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuform.hosts import run
from gpuform.hosts.verify import Report, verify
from tests.ansible.conftest import BedFactory
from tests.ansible.sabotage import (
    BY_HAND,
    DRIVER,
    OLD_TOOLKIT,
    OTHER_DRIVER,
    PRODUCT,
    SABOTAGE,
    TOOLKIT,
    Sabotage,
)
from tests.bed import Host, stack
from tests.tiers import nightly_but

pytestmark = pytest.mark.hosts

POOL = {
    "name": "a100",
    "hosts": ["gpu-1"],
    "gpu": {"models": ["A100-SXM4-40GB"], "count": 8},
    "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
}
CHECKS = (
    *("reachable", "gpus", "driver_version", "driver_packages", "fabricmanager", "held", "modules"),
    *("nouveau", "persistence", "units", "time_sync", "cuda", "mig", "toolkit_version", "toolkit_packages"),
    *("runtime", "cdi", "device_links", "no_gpu_without_request"),
)


@dataclass(frozen=True)
class VerifiedHost:
    host: Host
    inventory: dict[str, Any]

    def report(self) -> Report:
        return verify(self.inventory, stack="lab")

    def failed(self) -> dict[str, tuple[str, str]]:
        failed = [verdict for verdict in self.report().verdicts if verdict.verdict == "FAIL"]
        return {verdict.check: (verdict.fact, verdict.remedy) for verdict in failed}

    def apply(self) -> None:
        outcome = run("site.yml", self.inventory)
        assert outcome.ok, outcome.failures


@pytest.fixture(scope="module")
def site(bed: BedFactory) -> Iterator[VerifiedHost]:
    new_bed = bed(hosts=1)
    (host,) = new_bed.hosts
    host.play(PRODUCT, 8)
    new_bed.furnish_repository(drivers=(DRIVER, OTHER_DRIVER), toolkits=(TOOLKIT, OLD_TOOLKIT))
    host_under_test = VerifiedHost(host, stack.listing(new_bed, [POOL], cuda="12.2"))
    host_under_test.apply()
    yield host_under_test
    new_bed.down()


def test_a_prepared_host_is_as_declared(site: VerifiedHost) -> None:
    report = site.report()
    found = {one.check: one.fact or one.verdict for one in report.verdicts}
    assert {check: found[check] for check in CHECKS} == dict.fromkeys(CHECKS, "PASS")
    assert report.ok


@pytest.mark.nightly
def test_a_second_run_changes_nothing(site: VerifiedHost) -> None:
    outcome = run("site.yml", site.inventory)
    assert {name: (result.ok, result.changes) for name, result in outcome.hosts.items()} == {
        site.host.name: (True, ())
    }


@pytest.mark.nightly
def test_devices_have_their_links_before_systemd_is_reloaded(site: VerifiedHost) -> None:
    (unlinked,) = [one for one in SABOTAGE if one.name == "device without a link"]
    site.host.run(f"{unlinked.command}; rm /etc/systemd/system.conf.d/90-gpuform.conf")
    try:
        changes = list(run("site.yml", site.inventory).hosts[site.host.name].changes)
        link, limits = "Link the devices now", "Raise the limits of services"
        assert [name.rpartition(" : ")[2] for name in changes[:2]] == [link, limits]
        assert "create-dev-char-symlinks" in site.host.out("cat /etc/udev/rules.d/71-nvidia-dev-char.rules")
    finally:
        site.host.run(unlinked.undo)


@pytest.mark.nightly
def test_nothing_is_written_by_looking(site: VerifiedHost) -> None:
    site.host.run("touch /srv/before")
    site.report()
    apart = " ".join(f"-path {path} -prune -o" for path in ("/proc", "/sys", "/run", "/var/log", "/dev"))
    assert site.host.out(f"find / -xdev {apart} -type f -newer /srv/before -print") == ""


@pytest.mark.parametrize("sabotage", nightly_but("hold removed", {one.name: one for one in SABOTAGE}))
def test_each_sabotage_is_found_and_named(site: VerifiedHost, sabotage: Sabotage) -> None:
    site.host.run(sabotage.command)
    try:
        assert site.failed() == sabotage.findings
    finally:
        site.host.run(sabotage.undo)


@pytest.mark.nightly
def test_the_other_driver_runs_after_a_reboot(site: VerifiedHost) -> None:
    site.host.run(BY_HAND.command)
    try:
        site.host.reboot()
        found = site.failed()
        assert found["driver_version"] == (
            f"driver {OTHER_DRIVER} runs; {DRIVER} is pinned",
            "run `gpuform hosts apply lab` to bring it back, or pin the one that runs",
        )
        assert found["fabricmanager"][0] == f"fabric manager {OTHER_DRIVER}; it must be the driver's {DRIVER}"
    finally:
        site.host.run(BY_HAND.undo)
        site.host.reboot()


@pytest.mark.nightly
def test_the_remedy_that_is_named_helps(site: VerifiedHost) -> None:
    """Everything at once, then the one command that most findings name."""
    chosen = [one for one in SABOTAGE if one.by_apply]
    assert len(chosen) > 5
    for one in chosen:
        site.host.run(one.command)
    assert set(site.failed()) >= {"held", "runtime", "toolkit_version", "units"}
    site.apply()
    assert site.failed() == {}


@pytest.mark.nightly
def test_a_host_that_is_down_is_named_once(site: VerifiedHost) -> None:
    variables = site.inventory["_meta"]["hostvars"][site.host.name]
    down = {**variables, "ansible_host": site.host.address.rpartition(".")[0] + ".250"}
    report = verify({"_meta": {"hostvars": {"gpu-9": down, site.host.name: variables}}})
    hosts = report.to_json()["hosts"]
    assert hosts[site.host.name]["checks"]["gpus"]["verdict"] == "PASS"
    (failed,) = [name for name, one in hosts["gpu-9"]["checks"].items() if one["verdict"] == "FAIL"]
    assert failed == "reachable"
    assert hosts["gpu-9"]["checks"]["gpus"] == {
        "verdict": "SKIP",
        "fact": "the host cannot be asked",
        "remedy": "",
    }


def test_a_host_with_another_key_is_not_trusted(site: VerifiedHost, tmp_path: Path) -> None:
    variables = dict(site.inventory["_meta"]["hostvars"][site.host.name])
    (tmp_path / "known").touch()
    variables["ansible_ssh_common_args"] = (
        f"-o UserKnownHostsFile={tmp_path}/known -o StrictHostKeyChecking=yes"
    )
    report = verify({"_meta": {"hostvars": {site.host.name: variables}}})
    (failed,) = [one for one in report.verdicts if one.verdict == "FAIL"]
    assert (failed.check, failed.fact) == ("reachable", "Host key verification failed.")
