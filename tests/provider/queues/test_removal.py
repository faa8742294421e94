"""What is done to Kueue before Helm removes its release, and what a stopped Kueue refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import httpx
import pytest

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import ApiError, Client, Unreachable
from gpuform.provider.guards import removal as base
from gpuform.provider.handler import Call
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.own.provider import GpuformProvider
from gpuform.provider.queues.removal import KueueRemoval
from tests.provider.conftest import Log

pytestmark = pytest.mark.unit

KIND = "gpuform:queues:KueueRemoval"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
DEPLOYMENT = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager"
PODS = "/api/v1/namespaces/kueue-system/pods"


def kueue_object(name: str, finalizers: list[str], namespace: str = "", **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "uid": name, "finalizers": finalizers}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {}), "spec": spec}


class FakeKueue:
    """Lists by path; ``manager_polls`` is how often the controller's pods are listed; records changes."""

    def __init__(self, manager: int = 0, replicas: int = 2) -> None:
        self.manager_polls, self.replicas = manager, replicas
        self.lists: dict[str, list[dict[str, Any]]] = {}
        self.changes: list[tuple[str, str, Any]] = []
        self.gone: set[str] = set()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        if path == PODS:
            self.manager_polls -= 1
            return {"items": [{}] if self.manager_polls >= 0 else []}
        if path not in self.lists:
            raise ApiError(404, {})
        return {"items": self.lists[path]}

    async def find(self, path: str) -> dict[str, Any] | None:
        assert path == DEPLOYMENT
        return None if path in self.gone else {"spec": {"replicas": self.replicas}}

    async def request(self, method: str, path: str, *, body: Any, content_type: str) -> httpx.Response:
        self.changes.append((method, path, body))
        if path in self.gone:
            raise ApiError(404, {})
        return httpx.Response(200)


class SilentKueue(FakeKueue):
    async def find(self, path: str) -> dict[str, Any] | None:
        raise Unreachable("no answer")


def handler(played: FakeKueue) -> KueueRemoval:
    return KueueRemoval(lambda inputs: Cluster(cast(Client, played)))


def call() -> Call:
    return Call("urn", KIND, "queues-removal", Log(), asyncio.Event())


def delete(played: FakeKueue) -> list[tuple[str, str, Any]]:
    asyncio.run(handler(played).delete(call(), "id", {"kubeconfig": "k"}, {}))
    return played.changes


def test_it_is_a_type_of_the_provider() -> None:
    assert isinstance(GpuformProvider(Log()).handler(KIND), KueueRemoval)


def test_kueue_is_stopped_before_its_objects_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "POLL_S", 0)
    played = FakeKueue(manager=3)
    in_use, managed = "kueue.x-k8s.io/resource-in-use", "kueue.x-k8s.io/managed"
    played.lists = {
        f"{KUEUE}/workloads": [kueue_object("w", [in_use], "lab"), kueue_object("ended", [], "lab")],
        f"{KUEUE}/clusterqueues": [kueue_object("team", [in_use, "theirs"])],
        "/api/v1/pods": [
            kueue_object("runs", [managed, "theirs"], "lab"),
            kueue_object("waits", [managed], "lab", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
        ],
    }
    changes = delete(played)
    paths = [path for _, path, _ in changes]
    assert changes[0] == ("PATCH", DEPLOYMENT, {"spec": {"replicas": 0}})
    assert played.manager_polls < 0, "its pods have ended"
    assert [method for method, path, _ in changes if "webhookconfigurations" in path] == ["DELETE"] * 2
    assert all("webhookconfigurations" in path for path in paths[1:3]), "they would refuse what follows"
    bodies = {path: body["metadata"] for _, path, body in changes[3:-2]}
    assert bodies == {
        f"{KUEUE}/namespaces/lab/workloads/w": {"finalizers": [], "uid": "w"},
        f"{KUEUE}/clusterqueues/team": {"finalizers": ["theirs"], "uid": "team"},
        "/api/v1/namespaces/lab/pods/runs": {
            "finalizers": ["theirs"], "uid": "runs", "labels": {managed: None},
        },
        "/api/v1/namespaces/lab/pods/waits": {"finalizers": [], "uid": "waits"},
    }  # fmt: skip
    assert [body for *_, body in changes[-2:]] == [{"aggregationRule": None}] * 2
    assert [path.rpartition("/")[2] for path in paths[-2:]] == [
        "kueue-batch-admin-role",
        "kueue-batch-user-role",
    ]


def test_what_is_gone_already_is_passed_over() -> None:
    played = FakeKueue()
    delete(played)
    played.gone = {path for _, path, _ in played.changes}
    assert len(delete(played)) == 2 * 5


def test_a_controller_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "TIMEOUT_S", -1)
    played = FakeKueue(manager=9)
    with pytest.raises(OperationError, match="kueue-controller-manager: its pods do not end; see `kubectl"):
        delete(played)
    assert len(played.changes) == 1, "nothing is released while it runs"


@pytest.mark.parametrize(
    ("played", "fine"), [(FakeKueue(), True), (FakeKueue(replicas=0), False), (SilentKueue(), True)]
)
def test_a_kueue_that_an_interrupted_removal_has_stopped_is_refused(played: FakeKueue, fine: bool) -> None:
    checked = asyncio.run(handler(played).check(call(), {}, {"kubeconfig": "k", "context": None}))
    assert checked.inputs == {"kubeconfig": "k"}
    refusal = (
        "queues: Deployment kueue-system/kueue-controller-manager has no replicas, as after an interrupted "
        "removal; remove `queues:` in one update, and declare it again in the next"
    )
    assert [reason for _, reason in checked.failures] == ([] if fine else [refusal])
