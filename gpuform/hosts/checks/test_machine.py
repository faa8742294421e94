"""The machine: its services, its clock, and the CUDA toolkit."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import pytest
from testinfra.host import Host

from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import expect, first_line
from infra import facts

CLOCKS = ("chronyd", "chrony", "systemd-timesyncd", "ntpsec", "ntp")
SKEW_S = 5.0
"""A cluster's certificates and leases tolerate this; a synchronized clock is within 0.1 s."""


def test_units(machine: Host, expected: Expected) -> None:
    """The services that GPU containers need exist, start at boot and run."""
    units = []
    if expected.gpu_count:
        units += [_runtime_unit(machine, expected), "nvidia-persistenced"]
    if expected.fabricmanager:
        units.append("nvidia-fabricmanager")
    if expected.cuts_at_boot:
        units.append("nvidia-mig-manager")
    if not units:
        pytest.skip("the host has no GPUs")
    for unit in units:
        state = _state(machine, f"{unit}.service")
        mend = f"run {expected.apply}"
        expect(
            state["LoadState"] != "masked",
            f"{unit}.service is masked",
            f"`systemctl unmask {unit}`, then {mend}",
        )
        expect(state["LoadState"] == "loaded", f"{unit}.service is missing", mend)
        expect(
            state["UnitFileState"] in ("enabled", "static", "generated", "alias"),
            f"{unit}.service does not start at boot ({state['UnitFileState']})",
            f"`systemctl enable {unit}`, or {mend}",
        )
        expect(
            state["ActiveState"] == "active",
            f"{unit}.service is {state['ActiveState']}",
            f"see `journalctl -u {unit}`, then `systemctl restart {unit}`",
        )


def _runtime_unit(machine: Host, expected: Expected) -> str:
    """The service with the container runtime: of k3s and RKE2 the server's or the agent's."""
    if not expected.own_containerd:
        return {"containerd": "containerd", "crio": "crio"}[expected.runtime]
    services = expected.own_containerd.services
    return next(iter(_active(machine, services)), services[-1])


def test_distribution(machine: Host, expected: Expected) -> None:
    """The host runs the declared Kubernetes distribution."""
    services = {name: row.name for row in facts.DISTRIBUTIONS.values() for name in row.services}
    services["kubelet"] = "kubeadm"
    running = _active(machine, services)
    if not running:
        pytest.skip("no Kubernetes runs on the host yet")
    expect(
        expected.distribution in {services[name] for name in running},
        f"{', '.join(running)} runs; {expected.distribution} is declared",
        "correct cluster.distribution, or take the host out of the stack",
    )


def test_time_sync(machine: Host, expected: Expected) -> None:
    """The clock is right and synchronized; in a container it is the clock of the machine below."""
    before = time.time()
    said = machine.run("date +%s.%N").stdout.strip()
    after = time.time()
    skew = max(before - float(said), float(said) - after, 0.0)
    expect(skew <= SKEW_S, f"the clock is {skew:.1f} s away from this machine's", "start its time service")
    states = {name: _state(machine, f"{name}.service") for name in CLOCKS}
    there = [name for name, state in states.items() if state["UnitFileState"] in ("enabled", "alias")]
    expect(
        bool(there),
        f"no time service starts at boot (none of {', '.join(CLOCKS)})",
        f"`systemctl enable --now chrony`, or run {expected.apply}",
    )
    if machine.run("systemd-detect-virt --container").rc == 0:
        return
    synchronised = machine.run("timedatectl show -p NTPSynchronized --value").stdout.strip()
    expect(
        synchronised == "yes",
        f"{there[0]} has not synchronised the clock",
        f"see `journalctl -u {there[0]}`: its servers must be within reach",
    )


def test_cuda(machine: Host, expected: Expected) -> None:
    if not expected.cuda_version:
        pytest.skip("no CUDA toolkit is declared")
    said = machine.run("/usr/local/cuda/bin/nvcc --version")
    release = re.search(r"release (\d+\.\d+)", said.stdout)
    found = release[1] if release else f"none ({first_line(said.stderr or said.stdout)})"
    wanted = ".".join(expected.cuda_version.split(".")[:2])
    expect(found == wanted, f"nvcc is of CUDA {found}; {wanted} is declared", f"run {expected.apply}")


def _active(machine: Host, services: Iterable[str]) -> list[str]:
    """Those of the services that run."""
    return [name for name in services if _state(machine, f"{name}.service")["ActiveState"] == "active"]


def _state(machine: Host, unit: str) -> dict[str, str]:
    properties = "LoadState,UnitFileState,ActiveState"
    lines = machine.run("systemctl show -p %s %s", properties, unit).stdout.splitlines()
    found = dict.fromkeys(properties.split(","), "")
    return found | dict(line.split("=", 1) for line in lines if "=" in line)
