"""A newer driver in the repository is not installed by a system upgrade."""

from __future__ import annotations

import pytest

from tests.ansible.conftest import Prepared
from tests.bed import stack
from tests.bed.packages import driver, toolkit

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]
NEWER_DRIVER, NEWER_TOOLKIT = "580.105.08", "1.20.1"
QUERY = "nvidia-smi --query-gpu=driver_version --format=csv,noheader"
OURS = "dpkg-query -W -f '${Package} ${Version}\\n' '*nvidia*' | grep -v ' $'"


@pytest.fixture(scope="module")
def offered(prepared: Prepared):
    """The prepared host, with newer packages in its repository; and its packages before."""
    repository, host = prepared.bed.repository, prepared.bed.hosts[0]
    before = host.out(OURS)
    repository.put(*driver(NEWER_DRIVER), *toolkit(NEWER_TOOLKIT))
    repository.add("bystander", "1.0")
    repository.publish()
    host.run("apt-get update -qq && apt-get install -y -qq bystander")
    repository.add("bystander", "2.0")
    repository.publish()
    host.run("apt-get update -qq")
    yield host, before
    for package in [*driver(NEWER_DRIVER), *toolkit(NEWER_TOOLKIT)]:
        repository.remove(package.name, package.version)
    repository.publish()


def test_the_newer_one_is_there(offered):
    host, before = offered
    assert f"{NEWER_DRIVER}-1" in host.out("apt-cache madison nvidia-driver-cuda")
    assert f"nvidia-driver-cuda {stack.DRIVER}-1" in before


@pytest.mark.parametrize("upgrade", ["upgrade", "dist-upgrade", "install nvidia-driver-cuda"])
def test_no_upgrade_takes_it(offered, upgrade: str):
    host, before = offered
    host.run(
        f"DEBIAN_FRONTEND=noninteractive apt-get {upgrade} -y -qq -o Dpkg::Options::=--force-confold",
        check=False,
    )
    assert host.out(OURS) == before
    assert host.out(QUERY) == stack.DRIVER


def test_other_packages_are_upgraded(offered):
    host, _ = offered
    host.run("apt-get upgrade -y -qq")
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
