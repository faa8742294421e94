"""What a control plane host gets, and what persists after a reboot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.hosts.runner import run
from tests.ansible.conftest import Beds
from tests.bed import Bed, Host

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]

KUBE_PROXY = "table ip kube-proxy { chain services { type filter hook forward priority 0; accept; }; }"


@pytest.fixture(scope="module")
def prepared(bed: Beds) -> Iterator[Bed]:
    """One host with hardening that contradicts Kubernetes' requirements before our role runs."""
    made = bed(1)
    made.hosts[0].write("/etc/sysctl.d/99-sysctl.conf", "net.ipv4.ip_forward = 0\n")
    made.hosts[0].write("/etc/ssh/sshd_config.d/50-cloud-init.conf", "PasswordAuthentication yes\n")
    done = run("site.yml", _inventory(made))
    assert done.ok, done.failures
    yield made
    made.down()


@pytest.fixture
def host(prepared: Bed) -> Host:
    return prepared.hosts[0]


def test_a_second_run_changes_nothing(prepared: Bed) -> None:
    done = run("site.yml", _inventory(prepared))
    assert done.ok, done.failures
    assert done.hosts["gpu-1"].changes == ()


def test_settings_of_kubernetes_win_over_hardening_also_after_a_boot(host: Host) -> None:
    assert host.out("sysctl --values net.ipv4.ip_forward") == "1"
    host.reboot()
    assert host.out("sysctl --values net.ipv4.ip_forward") == "1"


def test_keys_only_whatever_later_files_say(host: Host) -> None:
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


def test_the_clock_is_left_to_the_machine_around_a_container(host: Host) -> None:
    assert host.out("systemctl is-enabled systemd-timesyncd") == "enabled"


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
