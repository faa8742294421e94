"""Whether a host answers at all, and its driver: GPUs, one version everywhere, which is held, and modules."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from testinfra.host import Host

from gpuform.hosts.checks import connections, nvidia_smi
from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import expect
from gpuform.hosts.checks.modules import OPEN, PROPRIETARY, loaded_modules, modinfo
from gpuform.hosts.checks.packages import Packages, expect_version, upstream_version

MODULES = ("nvidia", "nvidia_uvm")
"""Without nvidia_uvm no CUDA program starts; nvidia_modeset and nvidia_drm are for displays."""
DRIVER_PACKAGES = re.compile(r"(nvidia|cuda-drivers|libnvidia|xserver-xorg-video-nvidia|libcuda1).*")
DRIVER_CARRIERS = re.compile(
    r"nvidia-(kernel-(open-)?dkms|driver-cuda|smi|open-kernel-dkms)|kmod-nvidia-.*"
    r"|nvidia-(dkms|utils|compute-utils)(-.*)?"
)
"""Packages with the kernel modules and nvidia-smi, by NVIDIA's, Debian's, EL's and Ubuntu's names."""
NO_PACKAGES = ("runfile", "host")
"""Sources of a driver without packages, or with packages of another owner."""
TOOLKIT_CARRIERS = re.compile(r"nvidia-container-toolkit(-base)?")
TOOLKIT_PACKAGES = re.compile(r"(nvidia-container-toolkit|libnvidia-container).*")


def test_reachable(place: connections.Connection, expected: Expected) -> None:
    """The host answers; all other checks of an unreachable host are skipped."""
    way = expected.connection
    user = f"{way['ansible_user']}@" if way.get("ansible_user") else ""
    command = f"ssh -p {way.get('ansible_port') or 22} {user}{way.get('ansible_host') or expected.host} true"
    address = way.get("ansible_host") or expected.host
    remedy = (
        f"check that {address} is up and that ssh takes its key and yours: `{command}`"
        if place.by_ssh
        else "see `kubectl -n gpu-operator get pods -o wide`"
    )
    expect(not place.problem, place.problem, remedy)


@pytest.fixture
def gpus(driver: Host, expected: Expected) -> tuple[nvidia_smi.QueriedGpu, ...]:
    return nvidia_smi.parse_query(nvidia_smi.ask(driver, nvidia_smi.QUERY_COMMAND, expected))


def test_gpus(driver: Host, expected: Expected) -> None:
    """nvidia-smi lists exactly the declared number of GPUs, all of the declared model."""
    found = nvidia_smi.parse_list(nvidia_smi.ask(driver, "nvidia-smi -L", expected))
    listed = ", ".join(f"{n}x {name}" for name, n in sorted(Counter(gpu.name for gpu in found).items()))
    expect(
        len(found) == expected.gpu_count
        and all(nvidia_smi.same_product(gpu.name, expected.gpu_product) for gpu in found),
        f"nvidia-smi lists {listed or 'no GPU'}; {expected.gpu_count}x {expected.gpu_product} is declared",
        f"see `lspci -d 10de:` and `dmesg | grep -i xid` for a missing one, or correct pool {expected.pool}",
    )


def test_driver_version(gpus: tuple[nvidia_smi.QueriedGpu, ...], expected: Expected) -> None:
    running = sorted({gpu.driver_version for gpu in gpus})
    expect(
        running == [expected.driver_version],
        f"driver {', '.join(running) or 'none'} runs; {expected.driver_version} is pinned",
        "declare the one that runs"
        if expected.driver_source == "host"
        else f"run {expected.apply} to bring it back, or pin the one that runs",
    )


def test_driver_packages(packages: Packages, expected: Expected) -> None:
    """The driver's packages have the pinned version, so that the next boot runs it too."""
    if not expected.gpu_count or expected.driver_source in NO_PACKAGES:
        pytest.skip("the driver does not come from packages that gpuform installs")
    found = {name: v for name, v in packages.installed.items() if DRIVER_CARRIERS.fullmatch(name)}
    expect_version(found, expected.driver_version, "driver", expected.apply)


def test_fabricmanager(machine: Host, packages: Packages, expected: Expected) -> None:
    """On NVSwitch, the fabric manager has exactly the driver's version and runs: CUDA starts only then."""
    if not expected.fabricmanager:
        pytest.skip("no NVSwitch is declared")
    named = re.compile("nvidia-fabric-?manager(-.*)?")
    found = {n: upstream_version(v) for n, v in packages.installed.items() if named.fullmatch(n)}
    versions = sorted(set(found.values())) or ["not installed"]
    expect(
        versions == [expected.driver_version],
        f"fabric manager {', '.join(versions)}; it must be the driver's {expected.driver_version}",
        "install it as the host's driver was"
        if expected.driver_source == "host"
        else f"run {expected.apply}",
    )
    unit = machine.service("nvidia-fabricmanager")
    expect(
        unit.is_running,
        "nvidia-fabricmanager.service does not run",
        "see `journalctl -u nvidia-fabricmanager`, then `systemctl restart nvidia-fabricmanager`",
    )


def test_held(packages: Packages, expected: Expected) -> None:
    """Driver and toolkit keep their versions in any other upgrade."""
    if not expected.gpu_count:
        pytest.skip("the host has no GPUs")
    kept = packages.matching(TOOLKIT_CARRIERS, TOOLKIT_PACKAGES)
    if expected.driver_source not in NO_PACKAGES:
        kept |= packages.matching(DRIVER_CARRIERS, DRIVER_PACKAGES)
    expect(bool(kept), "nothing is installed that could be held", f"run {expected.apply}")
    free = sorted(kept - packages.held)
    hold = "apt-mark hold" if "dpkg" in packages.installed else "dnf versionlock add"
    expect(
        not free,
        f"not held: {', '.join(free)}",
        f"run `{hold} {' '.join(free)}`, or {expected.apply}: the next upgrade would change a driver in use",
    )


def test_modules(driver: Host, expected: Expected) -> None:
    """The driver's modules are loaded, and are of the declared flavour."""
    loaded = loaded_modules(driver)
    missing = [name for name in MODULES if name not in loaded]
    expect(
        not missing,
        f"not loaded: {', '.join(missing)}",
        f"run `modprobe -a {' '.join(missing)}` and see `dmesg` if it refuses, or {expected.apply}",
    )
    flavour = modinfo(driver, "license")
    if flavour and expected.driver_modules:
        wanted = {"open": OPEN, "proprietary": PROPRIETARY}[expected.driver_modules]
        expect(
            flavour == wanted,
            f"module nvidia has licence {flavour!r}; {expected.driver_modules} modules have {wanted!r}",
            f"run {expected.apply}, or declare the other modules for pool {expected.pool}",
        )


def test_nouveau(driver: Host, expected: Expected) -> None:
    """nouveau is not loaded: it would keep NVIDIA's driver from the GPU."""
    expect(
        "nouveau" not in loaded_modules(driver),
        "nouveau is loaded",
        f"run {expected.apply}, which blacklists it, and reboot the host",
    )


def test_persistence(gpus: tuple[nvidia_smi.QueriedGpu, ...], expected: Expected) -> None:
    off = [str(gpu.index) for gpu in gpus if not gpu.persistence]
    expect(
        not off,
        f"persistence mode is off on GPU {', '.join(off)}",
        "run `systemctl enable --now nvidia-persistenced`, or `nvidia-smi -pm 1` until the next boot",
    )
