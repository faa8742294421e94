"""What is removed from the nodes after the release of NVIDIA's operator, and what stays."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import httpx
import pytest

from gpuform.kubernetes.client import ApiError, Client
from gpuform.provider.guards import removal as base
from gpuform.provider.guards.operator_removal import GpuOperatorRemoval
from gpuform.provider.handler import Call
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.own.provider import GpuformProvider
from tests.provider.conftest import Log

pytestmark = pytest.mark.unit

KIND = "gpuform:nodes:GpuOperatorRemoval"
DEPLOY, UPGRADE = "nvidia.com/gpu.deploy.", "nvidia.com/gpu-driver-upgrade"
STATE, BEFORE = f"{UPGRADE}-state", f"{UPGRADE}.node-initial-state.unschedulable"


class FakeNodes:
    """A cluster with these nodes; ``polls`` is how often a pod of the operator is still listed."""

    def __init__(self, nodes: list[dict[str, Any]], polls: int = 0, gone: str = "") -> None:
        self.nodes, self.polls, self.gone = nodes, polls, gone
        self.patches: dict[str, Any] = {}

    async def get(self, path: str, params: Mapping[str, str]) -> dict[str, Any]:
        if path == "/api/v1/nodes":
            return {"items": self.nodes}
        assert path == "/api/v1/namespaces/gpu-operator/pods"
        self.polls -= 1
        return {"items": [{}] if self.polls >= 0 else []}

    async def request(self, method: str, path: str, *, body: Any, **more: Any) -> httpx.Response:
        assert (method, self.polls < 0) == ("PATCH", True), "the operator's pods have ended"
        name = path.rpartition("/")[2]
        if name == self.gone:
            raise ApiError(404, {})
        self.patches[name] = body
        return httpx.Response(200, json={})


def node(name: str, labels: dict[str, str], cordoned: bool = False, **annotations: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {"metadata": metadata, "spec": {"unschedulable": True} if cordoned else {}}


def delete(fake: FakeNodes) -> list[str]:
    """The messages."""
    log = Log()
    call = Call("urn", KIND, "gpu-operator-removal", log, asyncio.Event())
    handler = GpuOperatorRemoval(lambda inputs: Cluster(cast(Client, fake)))
    asyncio.run(handler.delete(call, "id", {"kubeconfig": "k"}, {}))
    return log.lines


def test_it_is_a_type_of_the_provider() -> None:
    assert isinstance(GpuformProvider(Log()).handler(KIND), GpuOperatorRemoval)


def test_what_the_operator_sets_goes_and_what_others_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "POLL_S", 0)
    own = {
        "nvidia.com/gpu.present": "false",
        f"{DEPLOY}driver": "true",
        f"{DEPLOY}dcgm": "paused-for-driver-upgrade",
        f"{DEPLOY}mig-manager": "",
        "nvidia.com/mig.config": "all-disabled",
        "nvidia.com/mig.config.state": "success",
        STATE: "upgrade-done",
    }
    others = {
        f"{DEPLOY}device-plugin": "false",
        f"{DEPLOY}container-toolkit": "pre-installed",
        f"{DEPLOY}operands": "true",
        f"{DEPLOY}client": "true",
        f"{UPGRADE}.skip": "true",
        "nvidia.com/gpu.product": "Tesla-T4",
        "gpuform.io/pool": "t4",
    }
    gpu = node("gpu", own | others, **{f"{UPGRADE}-enabled": "true", "mine": "1"})
    gpu["metadata"]["managedFields"] = [
        {"operation": operation, "fieldsV1": {"f:metadata": {"f:labels": {f"f:{DEPLOY}{name}": {}}}}}
        for operation, name in (("Apply", "client"), ("Update", "driver"))
    ]
    fake = FakeNodes([gpu, node("kept", {"nvidia.com/mig.config": "all-1g.5gb"})], polls=2)
    assert delete(fake) == []
    removed = {"labels": dict.fromkeys(own), "annotations": {f"{UPGRADE}-enabled": None}}
    assert fake.patches == {"gpu": {"metadata": removed}}


@pytest.mark.parametrize(
    ("state", "annotations", "uncordoned"),
    [
        ("pod-restart-required", {}, True),
        ("upgrade-failed", {}, True),
        ("upgrade-failed", {BEFORE: "true"}, False),
        ("upgrade-required", {}, False),
        ("upgrade-done", {}, False),
        ("", {}, False),
    ],
)
def test_a_node_that_the_operator_has_cordoned_is_uncordoned(
    state: str, annotations: dict[str, str], uncordoned: bool
) -> None:
    fake = FakeNodes([node("a", {STATE: state}, True, **annotations)])
    text = f"uncordoned, as the operator that upgraded the driver is gone: a ({state})"
    assert delete(fake) == ([text] if uncordoned else [])
    removed = {"labels": {STATE: None}, "annotations": dict.fromkeys(annotations)}
    spec = {"spec": {"unschedulable": None}} if uncordoned else {}
    assert fake.patches == {"a": {"metadata": removed, **spec}}


def test_nodes_and_pods_that_do_not_end_hold_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "TIMEOUT_S", -1)
    state = {STATE: "drain-required"}
    fake = FakeNodes([node(name, state, True) for name in "abc"], gone="b")
    assert delete(fake) == [
        "uncordoned, as the operator that upgraded the driver is gone: a (drain-required), c (drain-required)"
    ]
