"""site.yml on bare hosts: done after one run, unchanged by a second, and check mode reports no change."""

from __future__ import annotations

import pytest

from gpuform.hosts.runner import run
from tests.ansible.conftest import Beds, Prepared
from tests.bed import stack

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]


def test_check_mode_on_bare_hosts_says_what_it_would_do_and_does_nothing(bed: Beds):
    bare = bed(1)
    try:
        bare.furnish_repository()
        before = bare.hosts[0].out(_SNAPSHOT)
        outcome = run("site.yml", stack.listing(bare), check=True)
        assert {name: result.message for name, result in outcome.hosts.items() if not result.ok} == {}
        assert outcome.hosts["gpu-1"].changed > 10
        assert bare.hosts[0].out(_SNAPSHOT) == before
    finally:
        bare.down()


# Packages, and files except logs and files that a check leaves behind.
_SNAPSHOT = (
    "dpkg-query -W; find / -xdev -type f -not -path '/proc/*' -not -path '/sys/*' -not -path '/run/*' "
    "-not -path '/var/log/*' -not -path '/tmp/*' -not -path '/var/tmp/*' -not -path '*/.ansible/*' "
    "-not -path '/var/lib/apt/*' -not -path '/var/cache/apt/*' -not -path '/var/lib/systemd/*' "
    "-not -name '*.pyc' -printf '%p %s %T@\\n' | sort"
)


def test_one_run_makes_bare_hosts_done(prepared: Prepared):
    assert {name: result.message for name, result in prepared.first.hosts.items() if not result.ok} == {}
    assert prepared.first.hosts.keys() == {"gpu-1", "gpu-2"}
    gpu, cpu = prepared.bed.hosts
    listed = gpu.out("nvidia-smi --query-gpu=name,driver_version,persistence_mode --format=csv,noheader")
    assert listed == f"Tesla T4, {stack.DRIVER}, Enabled"
    assert gpu.out("nvidia-ctk --version").startswith(f"NVIDIA Container Toolkit CLI version {stack.TOOLKIT}")
    assert "nvidia" in gpu.out("containerd config dump")
    for host in (gpu, cpu):
        assert host.out("sysctl -n net.ipv4.ip_forward vm.overcommit_memory") == "1\n1"
        assert host.out("systemctl --failed --no-legend --plain") == ""
    assert cpu.run("dpkg-query -W 'nvidia*'", check=False).stdout == ""


def test_a_second_run_changes_nothing(prepared: Prepared):
    outcome = run("site.yml", prepared.inventory)
    assert {name: (result.ok, result.changes) for name, result in outcome.hosts.items()} == {
        "gpu-1": (True, ()),
        "gpu-2": (True, ()),
    }


def test_check_mode_has_nothing_to_say(prepared: Prepared):
    outcome = run("site.yml", prepared.inventory, check=True)
    assert {name: (result.ok, result.changes) for name, result in outcome.hosts.items()} == {
        "gpu-1": (True, ()),
        "gpu-2": (True, ()),
    }


def test_it_stays_so_after_a_reboot(prepared: Prepared):
    gpu = prepared.bed.hosts[0]
    gpu.reboot()
    assert gpu.out("nvidia-smi -L").startswith("GPU 0: Tesla T4 ")
    assert gpu.out("systemctl is-active nvidia-persistenced containerd") == "active\nactive"
    outcome = run("site.yml", prepared.inventory, check=True)
    assert {name: result.changes for name, result in outcome.hosts.items()} == {"gpu-1": (), "gpu-2": ()}
