"""InfiniBand and RoCE: links, firmware, namespaces, and whether adapters reach the memory of GPUs.

Read from sysfs, which every host and driver pod has. ``ibstat`` prints the same files, and is a package of
its own [Linux, Documentation/ABI/stable/sysfs-class-infiniband]. The limit of locked memory is not read: pods
have IPC_LOCK.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from testinfra.host import Host

from gpuform.hosts.checks import connections
from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import expect
from gpuform.hosts.checks.modules import OPEN, loaded_modules, modinfo

MELLANOX = "0x15b3"
ROOT = "/sys/class/infiniband"
FILES = (
    *("board_id", "fw_ver", "device/vendor", "device/net/*/ifindex"),
    *("ports/*/link_layer", "ports/*/phys_state", "ports/*/rate", "ports/*/state"),
)
NETNS = "/sys/module/ib_core/parameters/netns_mode"
"""Y if namespaces share adapters, the default; else a pod sees only those of its own namespace."""
LAYERS = {"infiniband": "InfiniBand", "ether": "Ethernet"}
FIRST_DMA_BUF = (5, 12)
"""Kernel in which an adapter can register DMA-BUF memory [GPU operator's page "GPUDirect RDMA"]."""


@dataclass
class Adapter:
    """One of /sys/class/infiniband: its files, and those of each port."""

    name: str
    files: dict[str, str] = field(default_factory=dict)
    interfaces: set[str] = field(default_factory=set)
    ports: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))


def parse(text: str) -> dict[str, Adapter]:
    """NVIDIA's adapters, by lines ``FILE:CONTENT``."""
    found: dict[str, Adapter] = {}
    for path, content in re.findall(rf"(?m)^{ROOT}/([^:]+):(.*)$", text):
        name, *rest = path.split("/")
        adapter = found.setdefault(name, Adapter(name))
        if rest[0] == "ports":
            adapter.ports[rest[1]][rest[2]] = content.strip()
        elif rest[:2] == ["device", "net"]:
            adapter.interfaces.add(rest[2])
        else:
            adapter.files["/".join(rest)] = content.strip()
    return {name: one for name, one in found.items() if one.files.get("device/vendor") == MELLANOX}


@pytest.fixture
def host(place: connections.Connection, expected: Expected) -> Host:
    if expected.rdma is None:
        pytest.skip("no RDMA adapters are declared")
    found = place.machine or place.driver
    if place.problem or found is None:
        pytest.skip("the host cannot be asked")
    return found


@pytest.fixture
def adapters(host: Host, expected: Expected, place: connections.Connection) -> Mapping[str, Adapter]:
    """Those that the pool's selectors match."""
    wanted = expected.rdma or {}
    names = {*wanted.get("interfaces", ())}
    if names and place.machine is None:
        pytest.skip("the interfaces of a host are seen on the host itself only, not from a pod")
    files = " ".join(f"{ROOT}/*/{file}" for file in FILES)
    found = parse(host.run(f"grep -sH '' {files}").stdout)
    layer = LAYERS.get(str(wanted.get("link_type")))
    chosen = {
        name: one
        for name, one in found.items()
        if (not names or names & one.interfaces)
        and (layer is None or any(port.get("link_layer") == layer for port in one.ports.values()))
    }
    missing = sorted(names - {name for one in chosen.values() for name in one.interfaces})
    what = (
        f"of {', '.join(missing)}" if missing else f"of NVIDIA{f' with link layer {layer}' if layer else ''}"
    )
    expect(
        bool(chosen) and not missing,
        f"no RDMA adapter {what}; there are {_listing(found) or 'none'}",
        f"see `lspci -d 15b3:` and `lsmod | grep mlx5_ib`, or correct rdma of pool {expected.pool}",
    )
    return chosen


def test_rdma_links(adapters: Mapping[str, Adapter]) -> None:
    """Every port of the selected adapters is active, at the same rate."""
    rates: dict[str, list[str]] = defaultdict(list)
    for label, port in _ports(adapters):
        state, physical = port.get("state", "?"), port.get("phys_state", "?")
        expect(
            not state.endswith("INIT"),
            f"{label} is {state}: its link is up, and no subnet manager has configured it",
            "start a subnet manager (opensm, or the switch's) on this fabric",
        )
        expect(
            state.endswith("ACTIVE"),
            f"{label} is {state}, its link {physical}",
            "check its cable and switch port, or select other adapters in rdma of the pool",
        )
        rates[port.get("rate", "?")].append(label)
    listed = "; ".join(f"{', '.join(labels)} {rate}" for rate, labels in sorted(rates.items()))
    remedy = (
        "check cable and switch port of the slow ones, or select adapters of one fabric in rdma of the pool"
    )
    expect(len(rates) == 1, f"ports have several rates: {listed}", remedy)


def test_rdma_firmware(adapters: Mapping[str, Adapter]) -> None:
    """Adapters of the same board have the same firmware."""
    boards: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, one in sorted(adapters.items()):
        boards[one.files.get("board_id", "?")][one.files.get("fw_ver", "?")].append(name)
    for board, versions in boards.items():
        listed = "; ".join(f"{', '.join(names)} {version}" for version, names in sorted(versions.items()))
        fact = f"adapters of board {board} have several firmwares: {listed}"
        expect(len(versions) == 1, fact, "update the older ones with `mlxfwmanager` and reset them")


def test_rdma_netns(host: Host) -> None:
    """Pods share the host's adapters; the device plugin gives them device files only."""
    mode = host.run(f"cat {NETNS}").stdout.strip()
    remedy = "remove netns_mode=0 from ib_core's options in /etc/modprobe.d, and reboot the host"
    expect(
        mode == "Y", f"ib_core's netns_mode is {mode or 'missing'}: no pod sees the host's adapters", remedy
    )


def test_rdma_gpudirect(driver: Host, host: Host) -> None:
    """Adapters reach the memory of GPUs: by DMA-BUF, or by nvidia_peermem or its predecessor."""
    if {"nvidia_peermem", "nv_peer_mem"} & loaded_modules(driver):
        return
    flavour, kernel = modinfo(driver, "license"), host.run("uname -r").stdout.strip()
    version = tuple(int(number) for number in re.findall(r"\d+", kernel)[:2])
    expect(
        flavour == OPEN and version >= FIRST_DMA_BUF,
        f"nvidia_peermem is not loaded, and modules of licence {flavour or 'unknown'!r} on kernel {kernel} "
        "have no DMA-BUF: traffic would be copied through the host's memory",
        "run `modprobe nvidia_peermem` and list it in /etc/modules-load.d, or install open kernel modules",
    )


def _ports(adapters: Mapping[str, Adapter]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for name, one in sorted(adapters.items()):
        for number, port in sorted(one.ports.items()):
            by_name = f" ({', '.join(sorted(one.interfaces))})" if one.interfaces else ""
            yield f"{name} port {number}{by_name}", port


def _listing(adapters: Mapping[str, Adapter]) -> str:
    return ", ".join(f"{label} {port.get('link_layer', '?')}" for label, port in _ports(adapters))
