"""Hosts that have joined a cluster: their nodes are read from a real API server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpuform.hosts.verify import verify

if TYPE_CHECKING:
    from tests.conftest import Plane

pytestmark = pytest.mark.cluster

TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def node(name: str, labels: dict[str, str], taints: list[dict[str, str]]) -> str:
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}
    return json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}})


def test_labels_and_taints_are_those_of_the_pool(control_plane: Plane) -> None:
    for text in (node("own-1", {"gpuform.io/pool": "t4"}, [TAINT]), node("own-2", {}, [])):
        control_plane.kubectl("create", "-f", "-", input=text)
    variables: dict[str, Any] = {
        "ansible_connection": "local",
        "gpuform_pool": "t4",
        "gpuform_kubeconfig": str(control_plane.kubeconfig),
        "gpuform_labels": {"gpuform.io/pool": "t4"},
        "gpuform_taints": [TAINT],
    }
    hosts = dict.fromkeys(("own-1", "own-2", "own-3"), variables)
    kubectl = control_plane.toolchain.path("kubectl")
    try:
        report = verify(
            {"_meta": {"hostvars": hosts}}, control_plane.paths.root, stack="own", kubectl=kubectl
        )
    finally:
        control_plane.kubectl("delete", "node", "own-1", "own-2")
    found = {(one.host, one.check): (one.verdict, one.fact, one.remedy) for one in report.verdicts}
    for check in ("labels", "taints"):
        assert found["own-1", check] == ("PASS", "", "")
        assert found["own-3", check] == ("SKIP", "has not joined the cluster", "")
    mend = "run `gpuform hosts apply own`"
    missing = "label gpuform.io/pool is missing; planned: gpuform.io/pool=t4"
    assert found["own-2", "labels"] == ("FAIL", missing, mend)
    bare = "taint nvidia.com/gpu=true:NoSchedule is missing; the node has none"
    assert found["own-2", "taints"][0] == "FAIL"
    assert found["own-2", "taints"][1].startswith(bare[:50])
    assert found["own-1", "kubelet"] == (
        "FAIL",
        "no kubelet runs on the host, which has joined a cluster",
        "see `journalctl -u kubelet`, then `systemctl restart kubelet` (k3s-agent, rke2-agent)",
    )
