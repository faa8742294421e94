"""The driver role on booted hosts: sources of the driver, what holds its version, and refusals."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.ansible.conftest import BedFactory
from tests.ansible.plays import NEW, OLD, boot_time, driver_inventory, driver_version, upgrade_driver
from tests.bed import Bed, Host

pytestmark = [pytest.mark.hosts, pytest.mark.nightly]

FAKES = "/usr/local/lib/fake-gpu"
RUNFILE = f"""\
#!/bin/sh
# Plays NVIDIA's installer: writes down how it was called and puts the fake driver on the disk.
echo "$@" >/var/lib/gpuform/called
mkdir -p /usr/lib/fake-gpu
echo '{{"version": "525.60.11", "licence": "NVIDIA"}}' >/usr/lib/fake-gpu/module.json
echo '{{"version": "525.60.11"}}' >/usr/lib/fake-gpu/library.json
printf '#!/bin/sh\\nexec {FAKES}/smi.py "$@"\\n' >/usr/bin/nvidia-smi
printf '#!/bin/sh\\nsleep infinity &\\n' >/usr/bin/nvidia-persistenced
printf '#!/bin/sh\\n' >/usr/bin/nvidia-uninstall
chmod +x /usr/bin/nvidia-smi /usr/bin/nvidia-persistenced /usr/bin/nvidia-uninstall
"""
MOKUTIL = """\
#!/bin/sh
case "$1" in
--sb-state) echo "SecureBoot enabled" ;;
--test-key) [ -e /etc/fake-enrolled ] && echo "$2 is already enrolled" || echo "$2 is not enrolled" ;;
esac
"""


@pytest.fixture(scope="module")
def hosts(bed: BedFactory) -> Iterator[Bed]:
    made = bed(2)
    made.furnish_repository(drivers=(OLD, NEW), toolkits=(), cuda=())
    yield made
    made.down()


@pytest.fixture(scope="module")
def packaged(hosts: Bed) -> Host:
    return hosts.host("gpu-1")


@pytest.fixture(scope="module")
def other(hosts: Bed) -> Host:
    """For tests that would change the first host's state."""
    return hosts.host("gpu-2")


def test_a_key_with_another_fingerprint_is_refused_before_it_is_installed(hosts: Bed, packaged: Host) -> None:
    wrong = {**hosts.repository.variables, "fingerprint": "0" * 40}
    done = upgrade_driver(driver_inventory(hosts, OLD, ["gpu-1"], nvidia_driver_repository=wrong))
    assert f"has the fingerprint {hosts.repository.fingerprint}" in done.hosts["gpu-1"].message
    assert packaged.out("find /etc/apt -name '*gpuform*'") == ""


def test_the_driver_is_installed_pinned_held_and_runs_without_a_restart(hosts: Bed, packaged: Host) -> None:
    before = boot_time(packaged)
    done = upgrade_driver(driver_inventory(hosts, OLD, ["gpu-1"]))
    assert done.ok, done.failures
    assert driver_version(packaged) == OLD
    assert boot_time(packaged) == before  # no driver was loaded before, so no reboot was needed
    held = packaged.out("apt-mark showhold").split()
    assert {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced", "libnvidia-ml1"} <= set(
        held
    )
    assert f"*** {OLD}-1 1001" in packaged.out("apt-cache policy nvidia-driver-cuda")
    assert packaged.out("nvidia-smi --query-gpu=persistence_mode --format=csv,noheader") == "Enabled"
    assert packaged.out("systemctl is-enabled nvidia-persistenced") == "enabled"
    assert "Signed-By: /etc/apt/keyrings/" in packaged.out(
        "cat /etc/apt/sources.list.d/gpuform-nvidia-driver.sources"
    )
    blacklist = packaged.out("apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert '"nvidia-"' in blacklist
    assert '"libnvidia-"' in blacklist


def test_a_version_that_no_repository_has_leaves_the_old_one_running_and_held(
    hosts: Bed, packaged: Host
) -> None:
    done = upgrade_driver(driver_inventory(hosts, "580.105.08", ["gpu-1"]))
    assert not done.ok
    assert "580.105.08" in done.hosts["gpu-1"].message
    assert driver_version(packaged) == OLD
    assert "nvidia-driver-cuda" in packaged.out("apt-mark showhold").split()


def test_a_module_with_a_key_unknown_to_secure_boot_is_refused_with_the_remedy(
    hosts: Bed, packaged: Host
) -> None:
    packaged.write("/usr/local/sbin/mokutil", MOKUTIL)
    packaged.run("chmod +x /usr/local/sbin/mokutil; mkdir -p /var/lib/dkms; touch /var/lib/dkms/mok.pub")
    before = boot_time(packaged)
    done = upgrade_driver(driver_inventory(hosts, NEW, ["gpu-1"]))
    message = done.hosts["gpu-1"].message
    assert "Secure Boot is on and /var/lib/dkms/mok.pub is not enrolled" in message
    assert "run mokutil --import on it, restart, enroll it at the console" in message
    assert driver_version(packaged) == OLD
    assert boot_time(packaged) == before


def test_an_upgrade_restarts_once_and_an_enrolled_key_is_no_obstacle(hosts: Bed, packaged: Host) -> None:
    packaged.run("touch /etc/fake-enrolled")
    before = boot_time(packaged)
    done = upgrade_driver(driver_inventory(hosts, NEW, ["gpu-1"]))
    packaged.run("rm /usr/local/sbin/mokutil")
    assert done.ok, done.failures
    assert driver_version(packaged) == NEW
    assert boot_time(packaged) != before
    assert "nvidia-driver-cuda" in packaged.out("apt-mark showhold").split()


def test_a_host_with_switches_gets_the_fabric_manager_of_the_drivers_version(
    hosts: Bed, packaged: Host
) -> None:
    done = upgrade_driver(driver_inventory(hosts, NEW, ["gpu-1"], nvidia_driver_fabricmanager=True))
    assert done.ok, done.failures
    assert packaged.out("nv-fabricmanager --version").endswith(NEW)
    assert packaged.out(
        "systemctl is-active nvidia-fabricmanager; systemctl is-enabled nvidia-fabricmanager"
    ) == ("active\nenabled")
    assert "nvidia-fabricmanager" in packaged.out("apt-mark showhold").split()


def test_the_other_modules_replace_the_first_ones(hosts: Bed, packaged: Host) -> None:
    before = boot_time(packaged)
    done = upgrade_driver(driver_inventory(hosts, NEW, ["gpu-1"], nvidia_driver_modules="proprietary"))
    assert done.ok, done.failures
    assert boot_time(packaged) != before  # the version is the same, but the old modules are in use
    assert packaged.out("modinfo -F license nvidia") == "NVIDIA"


def test_a_runfile_with_another_sum_is_not_run(hosts: Bed, other: Host) -> None:
    (hosts.web / "driver.run").write_text(RUNFILE)
    done = upgrade_driver(_by_runfile(hosts, "0" * 64))
    assert "checksum" in done.hosts["gpu-2"].message
    assert other.run("ls /var/lib/gpuform/called", check=False).returncode == 2


def test_the_runfile_of_the_source_is_installed_where_nouveau_was_and_the_host_restarts(
    hosts: Bed, other: Host
) -> None:
    other.run("touch /etc/fake-nouveau; echo blacklist nouveau >/etc/modprobe.d/off.conf")
    before = boot_time(other)
    done = upgrade_driver(_by_runfile(hosts, hashlib.sha256(RUNFILE.encode()).hexdigest()))
    assert done.ok, done.failures
    assert boot_time(other) != before
    assert other.out("nvidia-smi --query-gpu=driver_version --format=csv,noheader") == "525.60.11"
    assert other.out("cat /var/lib/gpuform/called") == (
        "--silent --dkms --no-x-check --no-nouveau-check --kernel-module-build-directory=kernel"
    )
    assert "nouveau" not in other.out("lsmod")
    assert (
        upgrade_driver(_by_runfile(hosts, hashlib.sha256(RUNFILE.encode()).hexdigest()))
        .hosts["gpu-2"]
        .changed
        == 0
    )


def _by_runfile(hosts: Bed, digest: str) -> dict[str, object]:
    return driver_inventory(
        hosts,
        "525.60.11",
        ["gpu-2"],
        nvidia_driver_source="runfile",
        nvidia_driver_modules="proprietary",
        nvidia_driver_repository={},
        nvidia_driver_runfile={"url": f"{hosts.url}/driver.run", "sha256": digest},
    )
