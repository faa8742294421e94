"""site.yml on bare hosts: done after one run, also after a reboot; check mode changes nothing.

A newer driver in the repository is not installed by a system upgrade. Then what a control plane host gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.hosts.runner import run
from tests.ansible.conftest import BedFactory, PreparedHosts
from tests.bed import Bed, Host, stack
from tests.bed.packages import driver, toolkit
from tests.bed.repository import Package

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]


def test_check_mode_on_bare_hosts_says_what_it_would_do_and_does_nothing(bed: BedFactory):
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


def test_one_run_makes_bare_hosts_done(prepared: PreparedHosts):
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


def test_prepared_hosts_stay_so_after_a_reboot(prepared: PreparedHosts):
    gpu = prepared.bed.hosts[0]
    gpu.reboot()
    assert gpu.out("nvidia-smi -L").startswith("GPU 0: Tesla T4 ")
    assert gpu.out("systemctl is-active nvidia-persistenced containerd") == "active\nactive"
    for check in (True, False):
        outcome = run("site.yml", prepared.inventory, check=check)
        assert {name: (result.ok, result.changes) for name, result in outcome.hosts.items()} == {
            "gpu-1": (True, ()),
            "gpu-2": (True, ()),
        }


NEWER_DRIVER, NEWER_TOOLKIT = "580.105.08", "1.20.1"
QUERY = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
OURS = "dpkg-query -W -f '${Package} ${Version}\\n' '*nvidia*' | grep -v ' $'"


@pytest.fixture(scope="module")
def offered(prepared: PreparedHosts):
    """The prepared host, with newer packages in its repository; and its packages before."""
    repository, host = prepared.bed.repository, prepared.bed.hosts[0]
    before = host.out(OURS)
    repository.put(*driver(NEWER_DRIVER), *toolkit(NEWER_TOOLKIT))
    repository.put(Package("bystander", "1.0"))
    repository.publish()
    host.run("apt-get update -qq && apt-get install -y -qq bystander")
    repository.put(Package("bystander", "2.0"))
    repository.publish()
    host.run("apt-get update -qq")
    assert f"{NEWER_DRIVER}-1" in host.out("apt-cache madison nvidia-driver-cuda")
    assert f"nvidia-driver-cuda {stack.DRIVER}-1" in before
    yield host, before
    for package in [*driver(NEWER_DRIVER), *toolkit(NEWER_TOOLKIT)]:
        repository.remove(package.name, package.version)
    repository.publish()


@pytest.mark.parametrize("upgrade", ["upgrade", "dist-upgrade", "install nvidia-driver-cuda"])
def test_no_upgrade_takes_it(offered, upgrade: str):
    host, before = offered
    host.run(
        f"DEBIAN_FRONTEND=noninteractive apt-get {upgrade} -y -qq -o Dpkg::Options::=--force-confold",
        check=False,
    )
    assert host.out(OURS) == before
    assert host.out(QUERY) == stack.DRIVER
    if upgrade != "install nvidia-driver-cuda":
        assert host.out("dpkg-query -W -f '${Version}' bystander") == "2.0"


def test_unattended_upgrades_leave_it(offered):
    host, before = offered
    host.run(
        "DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends unattended-upgrades"
    )
    host.write("/etc/apt/apt.conf.d/99all", 'Unattended-Upgrade::Origins-Pattern { "origin=*"; };\n')
    host.run("apt-get install -y -qq --allow-downgrades bystander=1.0")
    host.run("unattended-upgrade --verbose", timeout=600)
    assert host.out("dpkg-query -W -f '${Version}' bystander") == "2.0"  # not held
    assert host.out(OURS) == before
    # Without the hold, our own list of exceptions would still apply.
    held = host.out("apt-mark showhold").split()
    host.run(f"apt-mark unhold {' '.join(held)}")
    try:
        host.run("unattended-upgrade --verbose", timeout=600)
        assert host.out(OURS) == before
    finally:
        host.run(f"apt-mark hold {' '.join(held)}")


KUBE_PROXY = "table ip kube-proxy { chain services { type filter hook forward priority 0; accept; }; }"


@pytest.fixture(scope="module")
def hardened(bed: BedFactory) -> Iterator[Bed]:
    """One host with hardening that contradicts Kubernetes' requirements before our role runs."""
    made = bed(1)
    made.hosts[0].write("/etc/sysctl.d/99-sysctl.conf", "net.ipv4.ip_forward = 0\n")
    made.hosts[0].write("/etc/ssh/sshd_config.d/50-cloud-init.conf", "PasswordAuthentication yes\n")
    done = run("site.yml", _inventory(made))
    assert done.ok, done.failures
    yield made
    made.down()


@pytest.fixture
def host(hardened: Bed) -> Host:
    return hardened.hosts[0]


def test_settings_of_kubernetes_win_over_hardening_also_after_a_boot(host: Host) -> None:
    assert host.out("sysctl --values net.ipv4.ip_forward") == "1"
    host.reboot()
    assert host.out("sysctl --values net.ipv4.ip_forward") == "1"


def test_ssh_takes_keys_only_whatever_later_files_say(host: Host) -> None:
    told = host.out("sshd -T").splitlines()
    assert "passwordauthentication no" in told
    assert "permitrootlogin without-password" in told


def test_the_firewall_filters_what_is_addressed_to_the_host_and_leaves_other_tables_alone(host: Host) -> None:
    host.run(f"echo '{KUBE_PROXY}' | nft -f -")
    host.run("systemctl reload gpuform-firewall")
    ruleset = host.out("nft list ruleset")
    assert "table ip kube-proxy" in ruleset
    ours = host.out("nft list table inet gpuform")
    assert "hook input priority filter; policy drop;" in ours
    assert "forward" not in ours
    assert "tcp dport 6443 accept" in ours
    assert "tcp dport 30000-32767 accept" in ours
    host.run("systemctl stop gpuform-firewall")
    assert "gpuform" not in host.out("nft list ruleset")
    host.run("systemctl start gpuform-firewall")


def _inventory(bed: Bed) -> dict[str, Any]:
    found = bed.inventory()
    hosts = {
        name: {**given, "gpuform_environment": "bed", "gpuform_pool": ""}
        for name, given in found["_meta"]["hostvars"].items()
    }
    return {
        "_meta": {"hostvars": hosts},
        "all": {"children": ["kube_control_plane"]},
        "kube_control_plane": {"hosts": list(hosts)},
    }
