"""A Deployment in two colours on a node with two GPUs, and a watch over what must never happen."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.provider.conftest import ResourceDriver

TOKEN = "gpuform:workloads:BlueGreen"
GPU = "nvidia.com/gpu"
DEVICES = "simulator.gpuform.io/devices"
"""Without it a simulated pod that requests a GPU is never ready."""

_numbers = itertools.count()


@dataclass
class Watch:
    """Extremes: most pods with a GPU request, terminating ones included; fewest ready addresses."""

    max_pods: int = 0
    min_ready: int = 99


class WorkloadDriver(ResourceDriver):
    """One workload with its own name and node."""

    def declare(
        self, image: str = "a:1", replicas: int = 2, ready: bool = True, **more: Any
    ) -> dict[str, Any]:
        """Inputs as a program passes them; pods of an image that is not ``ready`` never become ready."""
        labels = {"app.kubernetes.io/name": self.name}
        meta = {"name": self.name, "namespace": "default", "labels": labels}
        container = {
            "name": "main",
            "image": image,
            "ports": [{"name": "serving", "containerPort": 80, "protocol": "TCP"}],
            "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}},
        }
        template = {
            "metadata": {"labels": labels, **({"annotations": {DEVICES: "0"}} if ready else {})},
            "spec": {
                "containers": [container],
                "nodeSelector": {"pool": self.name},
                "terminationGracePeriodSeconds": 0,
            },
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        ports = [{"name": "serving", "port": 80, "protocol": "TCP", "targetPort": "serving"}]
        return {
            "kubeconfig": self.kubeconfig,
            "deployment": {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec},
            "service": {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": meta,
                "spec": {"type": "ClusterIP", "selector": labels, "ports": ports},
            },
            "switchAt": (replicas + 1) // 2,
            "deadlineSeconds": 20,
            **more,
        }

    async def add_node(self, gpus: int) -> None:
        annotations = {"kwok.x-k8s.io/node": "fake"}
        meta = {"name": f"{self.name}-0", "labels": {"pool": self.name}, "annotations": annotations}
        await self.client.request(
            "POST", "/api/v1/nodes", body={"apiVersion": "v1", "kind": "Node", "metadata": meta}
        )
        offer = {GPU: str(gpus)}
        await self.client.request(
            "PATCH",
            f"/api/v1/nodes/{self.name}-0/status",
            body={"status": {"allocatable": offer, "capacity": offer}},
            content_type="application/merge-patch+json",
        )

    async def pods(self) -> list[dict[str, Any]]:
        return [pod for pod in (await self.client.get(*self._pods_of))["items"] if _is_active(pod)]

    async def images(self) -> list[str]:
        return sorted(pod["spec"]["containers"][0]["image"] for pod in await self.pods())

    async def serving(self) -> int:
        return sum(map(_ready_endpoints, (await self.client.get(*self._slices_of))["items"]))

    @property
    def _pods_of(self) -> tuple[str, dict[str, str]]:
        return "/api/v1/namespaces/default/pods", {"labelSelector": f"app.kubernetes.io/name={self.name}"}

    @property
    def _slices_of(self) -> tuple[str, dict[str, str]]:
        path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        return path, {"labelSelector": f"kubernetes.io/service-name={self.name}"}

    async def colour(self) -> str:
        service = await self.client.get(f"/api/v1/namespaces/default/services/{self.name}")
        return str(service["spec"]["selector"]["gpuform.io/colour"])

    async def replicas(self) -> dict[str, int]:
        replicas = {}
        for colour in ("blue", "green"):
            path = f"/apis/apps/v1/namespaces/default/deployments/{self.name}-{colour}"
            live = await self.client.find(path)
            replicas[colour] = live["spec"]["replicas"] if live else None
        return replicas

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[Watch]:
        """Every state of pods and endpoints during the block, from the API server's watch history."""
        await self.until(self.serving)
        starts = [await self._list(*start) for start in (self._pods_of, self._slices_of)]
        watch = Watch()
        try:
            yield watch
        finally:
            pods, slices = [[state async for state in self._since(*start)] for start in starts]
            watch.max_pods = max(sum(map(_is_active, state)) for state in pods)
            watch.min_ready = min(sum(map(_ready_endpoints, state)) for state in slices)

    async def _list(self, path: str, query: dict[str, str]) -> tuple[str, dict[str, str], Any]:
        return path, query, await self.client.get(path, query)

    async def _since(self, path: str, query: dict[str, str], first: Any) -> AsyncIterator[list[Any]]:
        """The list of objects at ``first`` and after each later change."""
        state = {item["metadata"]["name"]: item for item in first["items"]}
        yield list(state.values())
        version = first["metadata"]["resourceVersion"]
        while _versions(state.values()) != _versions((await self.client.get(path, query))["items"]):
            more = {**query, "watch": "true", "resourceVersion": version, "timeoutSeconds": "1"}
            answer = await self.client.request("GET", path, params=more)
            for line in answer.text.splitlines():
                event = json.loads(line)
                version = event["object"]["metadata"]["resourceVersion"]
                state[event["object"]["metadata"]["name"]] = event["object"]
                if event["type"] == "DELETED":
                    del state[event["object"]["metadata"]["name"]]
                yield list(state.values())


def _versions(objects: Iterable[dict[str, Any]]) -> set[str]:
    return {item["metadata"]["resourceVersion"] for item in objects}


def _is_active(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def _ready_endpoints(endpoint_slice: dict[str, Any]) -> int:
    return sum(point["conditions"].get("ready") is True for point in endpoint_slice.get("endpoints") or ())


@pytest.fixture
async def workload(
    control_plane: Any, anyio_backend: str, request: pytest.FixtureRequest
) -> AsyncIterator[WorkloadDriver]:
    """A fresh node with two GPUs, or the parameter's number; what it has is removed afterwards."""
    workload = WorkloadDriver(control_plane.kubeconfig.read_text(), f"serve-{next(_numbers)}", TOKEN)
    await workload.add_node(getattr(request, "param", 2))
    yield workload
    mine = {"labelSelector": f"app.kubernetes.io/name={workload.name}"}
    for path in (
        "/apis/apps/v1/namespaces/default/deployments",
        "/api/v1/namespaces/default/services",
        "/api/v1/namespaces/default/pods",
    ):
        await workload.client.request("DELETE", path, params=mine)
    own = {"labelSelector": f"pool={workload.name}"}
    await workload.client.request("DELETE", "/api/v1/nodes", params=own)
    await workload.provider.close()
