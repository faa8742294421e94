"""The role nvidia_mig on a booted host with a played A100, driver and mig-parted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ansible.conftest import BedFactory
from tests.ansible.plays import BOOT, Role, boot_time
from tests.bed.host import Host

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]

PRODUCT = "NVIDIA A100-SXM4-40GB"


def config(**layouts: dict[str, int]) -> dict[str, Any]:
    cut = {"devices": "all", "mig-enabled": True}
    return {
        "version": "v1",
        "mig-configs": {name: [{**cut, "mig-devices": of}] for name, of in layouts.items()},
    }


CONFIG = config(mixed={"3g.20gb": 1, "2g.10gb": 2}, small={"1g.5gb": 7})
UNIT = "nvidia-mig-manager.service"


@pytest.fixture(scope="module")
def mig(bed: BedFactory, tmp_path_factory: pytest.TempPathFactory) -> Role:
    made = bed(1)
    host = made.hosts[0]
    repository = made.furnish_repository(toolkits=(), cuda=("12.2",))
    host.write("/etc/fake-gpu.json", json.dumps({"product": PRODUCT, "count": 1}))
    host.write("/etc/apt/trusted.gpg.d/test.asc", repository.key.read_text())
    host.write("/etc/apt/sources.list.d/test.list", f"deb {repository.url} ./\n")
    host.run("apt-get update && apt-get install -y nvidia-driver-cuda nvidia-kernel-open-dkms", timeout=600)
    layout = {"nvidia_mig_layout": "mixed", "nvidia_mig_config": CONFIG}
    return Role(tmp_path_factory.mktemp("mig"), made, "nvidia_mig", **layout)


@pytest.fixture(scope="module")
def host(mig: Role) -> Host:
    assert mig.play(check=True).changed
    host = mig.bed.hosts[0]
    assert host.run("command -v nvidia-mig-parted", check=False).returncode, "a check installed something"
    result = mig.play()
    assert result.ok, result.message
    return host


MIXED = ["2g.10gb", "2g.10gb", "3g.20gb"]


def slices(host: Host) -> list[str]:
    return sorted(line.split()[1] for line in host.out("nvidia-smi -L").splitlines() if "MIG " in line)


def test_layout_is_cut_on_a_bare_host(host: Host) -> None:
    assert slices(host) == MIXED
    assert host.out(f"systemctl is-enabled {UNIT}") == "enabled"
    assert host.out(f"systemctl is-active {UNIT}") == "active"


def test_the_instances_are_there_after_a_restart_of_the_host(host: Host, mig: Role) -> None:
    host.reboot()
    assert slices(host) == MIXED
    assert mig.play(check=True).changed == 0


def test_layout_is_changed_and_changed_back(host: Host, mig: Role) -> None:
    result = mig.play(nvidia_mig_layout="small")
    assert result.ok, result.message
    assert slices(host) == ["1g.5gb"] * 7
    assert mig.play(nvidia_mig_layout="small").changed == 0
    assert mig.play().ok


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"nvidia_mig_layout": "none-such"},
            "nvidia_mig_config has no layout none-such; it has mixed, small",
        ),
        (
            {"nvidia_mig_layout": "trap", "nvidia_mig_config": config(trap={"3g.20gb": 2, "1g.5gb": 1})},
            "the GPUs are not cut as trap",
        ),
    ],
)
def test_a_layout_that_cannot_be_is_refused(host: Host, mig: Role, given: dict[str, Any], said: str) -> None:
    result = mig.play(**given)
    assert not result.ok
    assert said in result.message
    assert mig.play().ok


def test_layout_is_refused_while_a_process_uses_the_gpu(host: Host, mig: Role) -> None:
    """The real nvidia-smi lists processes; here a wrapper earlier on PATH adds one."""
    wrapper = "/usr/local/sbin/nvidia-smi"
    says = 'case "$1" in --query-compute-apps*) echo "4711, python"; exit ;; esac'
    host.write(wrapper, f'#!/bin/sh\n{says}\nexec /usr/bin/nvidia-smi "$@"\n')
    host.run(f"chmod +x {wrapper}")
    try:
        before = slices(host)
        result = mig.play(nvidia_mig_layout="small")
        assert not result.ok
        assert "MIG cannot be changed while processes use the GPUs: 4711, python" in result.message
        assert slices(host) == before
        assert mig.play().ok, "nothing is to be changed, so a process is no hindrance"
    finally:
        host.run(f"rm {wrapper}")


def test_a_mode_that_waits_for_a_restart_gets_one(host: Host, mig: Role) -> None:
    """As in a virtual machine: the unit cannot reset the GPU, and only the next boot has the new mode."""
    wrapper, parted = "/usr/local/sbin/nvidia-smi", "/usr/bin/nvidia-mig-parted"
    waits = '[ ! -e /run/waits ] || { echo "Disabled, Enabled"; exit; }'
    says = f'case "$1" in --query-gpu=mig.mode.current,*) {waits} ;; esac'
    host.write(wrapper, f'#!/bin/sh\n{says}\nexec /usr/bin/nvidia-smi "$@"\n')
    host.run(f"chmod +x {wrapper}; mv {parted} {parted}.real; touch /run/waits; nvidia-smi -mig 0")
    host.write(parted, f'#!/bin/sh\n[ ! -e /run/waits ] || exit 1\nexec {parted}.real "$@"\n')
    host.run(f"chmod +x {parted}")
    before = boot_time(host)
    try:
        result = mig.play(nvidia_mig_boot_time_command=BOOT, nvidia_mig_reboot_timeout=120)
        assert result.ok, result.message
        assert boot_time(host) != before
        assert slices(host) == MIXED
    finally:
        host.run(f"rm {wrapper}; mv {parted}.real {parted}")
