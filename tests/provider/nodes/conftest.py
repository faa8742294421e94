from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuform.provider.handler import Call
from gpuform.provider.nodes.drain import users
from gpuform.provider.nodes.layout import NOTE
from gpuform.provider.own.provider import Own
from tests.provider.shown import Log
from tests.waiting import PATIENCE

_numbers = itertools.count()


@dataclass
class Scene:
    """A pool of fresh nodes with its own label, driven inside one event loop."""

    kubeconfig: str
    pool: str
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        self.provider = Own(self.log)
        self.cluster = self.provider._shared().of({"kubeconfig": self.kubeconfig})
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}

    @property
    def selector(self) -> str:
        return f"pool={self.pool}"

    def call(self, token: str, **more: Any) -> Call:
        return Call(
            f"urn:pulumi:dev::t::{token}::{self.pool}", token, self.pool, self.log, asyncio.Event(), **more
        )

    async def ask(self, token: str, verb: str, *args: Any, **more: Any) -> Any:
        handler = self.provider.handler(f"gpuform:nodes:{token}")
        return await getattr(handler, verb)(self.call(token, **more), *args)

    async def checked(self, token: str, **inputs: Any) -> dict[str, Any]:
        news = {"kubeconfig": self.kubeconfig, "selector": self.selector, **inputs}
        answer = await self.ask(token, "check", self.inputs, news)
        assert not answer.failures, answer.failures
        return answer.inputs

    async def create(self, token: str, **inputs: Any) -> Any:
        news = await self.checked(token, **inputs)
        _, self.outputs = await self.ask(token, "create", news)
        self.inputs = news
        return self.outputs

    async def update(self, token: str, **inputs: Any) -> Any:
        news = await self.checked(token, **inputs)
        self.outputs = await self.ask(token, "update", self.pool, self.inputs, self.outputs, news)
        self.inputs = news
        return self.outputs

    async def changes(self, token: str, **inputs: Any) -> set[str]:
        news = await self.checked(token, **inputs)
        answer = await self.ask(token, "diff", self.pool, self.inputs, self.outputs, news)
        return set(answer.changes)

    async def add_node(self, name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> str:
        full = f"{self.pool}-{name}"
        notes = {
            "kwok.x-k8s.io/node": "fake",
            "simulator.gpuform.io/cpu": "8",
            "simulator.gpuform.io/memory": "32Gi",
        }
        meta = {"name": full, "labels": {"pool": self.pool, **(labels or {})}, "annotations": notes}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
        await self.cluster.client.request("POST", "/api/v1/nodes", body=body)
        return full

    async def node(self, name: str) -> Any:
        return await self.cluster.client.get(f"/api/v1/nodes/{name}")

    def writes(self) -> list[tuple[str, str]]:
        """Method and path of every later request except GET; the list fills as they are sent."""
        found: list[tuple[str, str]] = []
        send = self.cluster.client.request

        async def request(method: str, path: str, **more: Any) -> Any:
            if method != "GET":
                found.append((method, path))
            return await send(method, path, **more)

        self.cluster.client.request = request  # type: ignore[method-assign]
        return found

    async def is_open(self, name: str) -> bool:
        node = await self.node(name)
        return not node["spec"].get("unschedulable") and NOTE not in node["metadata"]["annotations"]

    async def labels(self, name: str) -> Any:
        return (await self.node(name))["metadata"]["labels"]

    async def offers(self, name: str, resources: Mapping[str, int | None]) -> None:
        """Set what the node offers, as its kubelet would; None removes a resource."""
        body = {"status": {key: dict(resources) for key in ("allocatable", "capacity")}}
        await self.cluster.client.request(
            "PATCH", f"/api/v1/nodes/{name}/status", body=body, content_type="application/merge-patch+json"
        )

    async def apply(self, path: str, body: Any) -> None:
        await self.cluster.client.request("POST", path, body=body)

    async def until(self, question: Callable[[], Any], seconds: float = 20) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds * PATIENCE
        while not (answer := await question()) and loop.time() < deadline:
            await asyncio.sleep(0.1)
        assert answer, "it did not come about"
        return answer

    async def pod(self, name: str, node: str, resource: str, **more: Any) -> None:
        """A pod on ``node`` that requests one ``resource`` and runs: its devices are set."""
        meta = {
            "name": name,
            "labels": {"pool": self.pool},
            "annotations": {"simulator.gpuform.io/devices": "0"},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**meta, **more},
            "spec": _spec(resource, nodeName=node),
        }
        await self.apply("/api/v1/namespaces/default/pods", body)

    async def deploy(self, resource: str, replicas: int = 1) -> None:
        labels = {"pool": self.pool, "app": self.pool}
        meta = {"labels": labels, "annotations": {"simulator.gpuform.io/devices": "0"}}
        template = {"metadata": meta, "spec": _spec(resource, nodeSelector={"pool": self.pool})}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": self.pool}}, "template": template}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.pool, "labels": labels},
        }
        await self.apply("/apis/apps/v1/namespaces/default/deployments", {**body, "spec": spec})

    async def budget(self, minimum: int) -> None:
        spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": self.pool}}}
        meta = {"name": f"budget-{self.pool}", "labels": {"pool": self.pool}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
        await self.apply("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)

    async def running(self, name: str) -> list[str]:
        pods = await self.cluster.pods(name)
        return [
            pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") == "Running"
        ]

    async def users(self, name: str) -> list[str]:
        return [item["metadata"]["name"] for item in await users(self.cluster, name)]


def _spec(resource: str, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {resource: "1"}}}
    return {"containers": [container], "terminationGracePeriodSeconds": 0, **more}


@pytest.fixture
def play(control_plane: Any) -> Callable[[Callable[[Scene], Any]], None]:
    """Runs ``act(scene)`` in a fresh loop with a fresh pool, and removes the pool's objects afterwards."""

    def run(act: Callable[[Scene], Any]) -> None:
        async def whole() -> None:
            scene = Scene(control_plane.kubeconfig.read_text(), f"pool-{next(_numbers)}")
            try:
                await act(scene)
            finally:
                for path in (
                    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
                    "/apis/apps/v1/namespaces/default/deployments",
                    "/api/v1/namespaces/default/pods",
                    "/api/v1/nodes",
                ):
                    await scene.cluster.client.request(
                        "DELETE", path, params={"labelSelector": scene.selector}
                    )
                await scene.provider.close()

        asyncio.run(whole())

    return run
