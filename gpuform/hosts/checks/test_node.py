"""The host's MIG slices, and the host as a node of its cluster, once it has joined one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from testinfra.host import Host

from gpuform.hosts.checks import connections, nvidia_smi
from gpuform.hosts.checks.expected import Expected
from gpuform.hosts.checks.findings import expect

MIG_STATE = "nvidia.com/mig.config.state"
KUBELETS = ("kubelet", "k3s-agent", "k3s", "rke2-agent", "rke2-server", "k0sworker", "k0scontroller")
"""kubeadm and kubespray, k3s, RKE2, k0s: the unit in which each runs the kubelet."""


def test_mig(driver: Host, expected: Expected) -> None:
    """Every GPU has exactly the planned slices; without planned slices, MIG is off."""
    if expected.mig is None:
        pytest.skip("its slices are the operator's, and its plan is not in the inventory")
    planned = any(expected.mig.values())
    listed = nvidia_smi.parse_list(nvidia_smi.ask(driver, "nvidia-smi -L", expected))
    mend = (
        f"end what runs on the GPU, then run {expected.apply}: a GPU in use is not cut again"
        if planned
        else "end what runs on the GPU, then run `nvidia-smi -mig 0`"
    )
    for gpu in listed:
        has, wants = dict(gpu.slices), expected.slices(gpu.index) or {}
        expect(has == wants, f"GPU {gpu.index} has {_words(has)}; {_words(wants)} planned", mend)
    if not planned:
        queried = nvidia_smi.parse_query(nvidia_smi.ask(driver, nvidia_smi.QUERY_COMMAND, expected))
        on = ", ".join(str(gpu.index) for gpu in queried if gpu.mig_mode)
        expect(not on, f"MIG mode is on, without slices, on GPU {on}; no program can use it", mend)


def test_mig_state(node: dict[str, Any], expected: Expected) -> None:
    state = node["metadata"].get("labels", {}).get(MIG_STATE)
    if state is None:
        pytest.skip("no MIG manager has acted on the node")
    expect(
        state == "success",
        f"the node's {MIG_STATE} is {state!r}",
        "see the log of nvidia-mig-manager on this node; a GPU in use is not cut again",
    )


def test_kubelet(node: dict[str, Any], place: connections.Connection) -> None:
    if place.machine:
        active = place.machine.run(f"systemctl is-active {' '.join(KUBELETS)}").stdout.split()
        expect(
            "active" in active,
            "no kubelet runs on the host, which has joined a cluster",
            "see `journalctl -u kubelet`, then `systemctl restart kubelet` (k3s-agent, rke2-agent)",
        )
    conditions = {one["type"]: one for one in node.get("status", {}).get("conditions", [])}
    ready = conditions.get("Ready", {})
    expect(
        ready.get("status") == "True",
        f"the node is not ready: {ready.get('message', 'it has no such condition')}",
        f"see `kubectl describe node {node['metadata']['name']}`",
    )


def test_labels(node: dict[str, Any], expected: Expected) -> None:
    has = node["metadata"].get("labels", {})
    wrong = [
        f"{key} is {has[key]!r}" if key in has else f"{key} is missing"
        for key, value in sorted(expected.labels.items())
        if has.get(key) != value
    ]
    wanted = ", ".join(f"{key}={value}" for key, value in sorted(expected.labels.items()))
    expect(not wrong, f"label {', '.join(wrong)}; planned: {wanted}", f"run {expected.apply}")


def test_taints(node: dict[str, Any], expected: Expected) -> None:
    """The node has its pool's taints, so that only pods that request GPUs are scheduled on it."""
    has = {_taint(taint) for taint in node.get("spec", {}).get("taints", [])}
    missing = [taint for taint in map(_taint, expected.taints) if taint not in has]
    expect(
        not missing,
        f"taint {', '.join(missing)} is missing; the node has {', '.join(sorted(has)) or 'none'}",
        f"run {expected.apply}",
    )


def _taint(taint: dict[str, Any] | Any) -> str:
    return f"{taint['key']}={taint.get('value', '')}:{taint['effect']}"


def _words(slices: Mapping[str, int]) -> str:
    return ", ".join(f"{count}x {profile}" for profile, count in sorted(slices.items())) or "no slices"
