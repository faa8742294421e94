"""The number of pods of a Deployment that is no longer scaled."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.kubernetes.client import Client
from gpuform.provider.guards import removal as base
from gpuform.provider.handler import Call
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.own.provider import GpuformProvider
from gpuform.provider.workloads.scaling import ScalingRemoval
from tests.provider.conftest import Log

pytestmark = pytest.mark.unit

TYPE = "gpuform:workloads:ScalingRemoval"
DEPLOYMENT = "/apis/apps/v1/namespaces/lab/deployments/web"
AUTOSCALERS = "/apis/autoscaling/v2/namespaces/lab/horizontalpodautoscalers"
INPUTS = {"kubeconfig": "k", "namespace": "lab", "name": "web"}


def autoscaler(scaled_object: str) -> dict[str, Any]:
    owner = {"kind": "ScaledObject", "name": scaled_object}
    return {"metadata": {"name": f"keda-hpa-{scaled_object}", "ownerReferences": [owner]}}


class FakeCluster:
    """A Deployment of four pods; its autoscaler is found ``polls`` times, and sets four pods each time."""

    def __init__(self, declared: str | None = "3", polls: int = 0) -> None:
        self.annotations = {"gpuform.io/replicas": declared} if declared else None
        self.replicas, self.polls, self.exists = 4, polls, True

    async def get(self, path: str) -> dict[str, Any]:
        assert path == AUTOSCALERS
        self.polls -= 1
        others = [autoscaler("other"), {"metadata": {"name": "web"}}]
        if self.polls < 0:
            return {"items": others}
        self.replicas = 4
        return {"items": [*others, autoscaler("web")]}

    async def find(self, path: str) -> dict[str, Any] | None:
        assert path == DEPLOYMENT
        deployment = {"metadata": {"annotations": self.annotations}, "spec": {"replicas": self.replicas}}
        return deployment if self.exists else None

    async def request(self, method: str, path: str, *, body: Mapping[str, Any], content_type: str) -> None:
        assert (method, path, content_type) == (
            "PATCH",
            f"{DEPLOYMENT}/scale",
            "application/merge-patch+json",
        )
        self.replicas = body["spec"]["replicas"]


def delete(played: FakeCluster, **more: Any) -> int:
    """The number of pods afterwards."""
    handler = ScalingRemoval(lambda inputs: Cluster(cast(Client, played)))
    call = Call("urn", TYPE, "web-scaling", Log(), asyncio.Event(), **more)
    asyncio.run(handler.delete(call, "id", INPUTS, {}))
    return played.replicas


def test_it_is_a_type_of_the_provider() -> None:
    assert isinstance(GpuformProvider(Log()).handler(TYPE), ScalingRemoval)


def test_the_declared_number_is_set_after_the_autoscaler_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "POLL_S", 0)
    played = FakeCluster(polls=3)
    assert delete(played) == 3
    assert played.polls < 0


def test_a_deployment_that_is_deleted_next_keeps_its_pods() -> None:
    played = FakeCluster(declared=None, polls=9)
    assert delete(played) == 4
    assert played.polls == 9, "its autoscaler is not waited for"


def test_a_deployment_that_has_gone_is_passed_over() -> None:
    played = FakeCluster()
    played.exists = False
    assert delete(played) == 4


def test_an_autoscaler_that_stays_is_named() -> None:
    message = r"HorizontalPodAutoscaler lab/keda-hpa-web of ScaledObject web is still there; see `kubectl"
    with pytest.raises(OperationError, match=message):
        delete(FakeCluster(polls=9), timeout=0.01)
