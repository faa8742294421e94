"""The host as a node of its cluster, once it has joined one."""

from __future__ import annotations

from typing import Any

from tests.hosts import connections
from tests.hosts.expected import Expected
from tests.hosts.findings import expect

KUBELETS = ("kubelet", "k3s-agent", "k3s", "rke2-agent", "rke2-server", "k0sworker", "k0scontroller")
"""kubeadm and kubespray, k3s, RKE2, k0s: the unit in which each runs the kubelet."""


def test_kubelet(node: dict[str, Any], place: connections.Connection) -> None:
    if place.machine:
        active = place.machine.run(f"systemctl is-active {' '.join(KUBELETS)}").stdout.split()
        expect(
            "active" in active,
            "no kubelet runs on the host, which has joined a cluster",
            "see `journalctl -u kubelet`, then `systemctl restart kubelet` (k3s-agent, rke2-agent)",
        )
    ready = next((one for one in node.get("status", {}).get("conditions", []) if one["type"] == "Ready"), {})
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
