"""A cluster's nodes as the tests make them, and a stand-in for NVIDIA's MIG manager on them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuform.plugins.handler import Call, Engine
from gpuform.plugins.kubernetes.client import ApiError
from gpuform.plugins.nodes.drain import users
from gpuform.plugins.nodes.provider import Nodes

_numbers = itertools.count()


class Log(Engine):
    """Keeps what would be shown to the user."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    async def log(self, text: str, *, severity: int, urn: str = "", ephemeral: bool = False) -> None:
        self.lines.append(text)


@dataclass
class Scene:
    """A pool of fresh nodes with a label of its own, driven inside one event loop."""

    kubeconfig: str
    pool: str
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        self.provider = Nodes(self.log)
        self.cluster = self.provider._clusters.of({"kubeconfig": self.kubeconfig})
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

    async def labels(self, name: str) -> Any:
        return (await self.node(name))["metadata"]["labels"]

    async def offers(self, name: str, resources: Mapping[str, int | None]) -> None:
        """Set what the node offers, as its kubelet would; None takes a resource away."""
        body = {"status": {key: dict(resources) for key in ("allocatable", "capacity")}}
        await self.cluster.client.request(
            "PATCH", f"/api/v1/nodes/{name}/status", body=body, content_type="application/merge-patch+json"
        )

    async def apply(self, path: str, body: Any) -> None:
        await self.cluster.client.request("POST", path, body=body)

    async def until(self, question: Callable[[], Any], seconds: float = 20) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not (answer := await question()) and loop.time() < deadline:
            await asyncio.sleep(0.1)
        assert answer, "it did not come about"
        return answer

    async def pod(self, name: str, node: str, resource: str, **more: Any) -> None:
        """A pod on ``node`` that asks for one ``resource`` and, its devices given, runs."""
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
        """A Deployment on this pool whose pods ask for one ``resource`` each."""
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
        """A disruption budget over the pods of `deploy`."""
        spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": self.pool}}}
        meta = {"name": f"budget-{self.pool}", "labels": {"pool": self.pool}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
        await self.apply("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)

    async def running(self, name: str) -> list[str]:
        """The names of the pods on a node that run."""
        pods = await self.cluster.pods(name)
        return [
            pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") == "Running"
        ]

    def manager(self, layouts: Mapping[str, Mapping[str, int]]) -> MigManager:
        """What acts on the layout labels of this pool while ``async with`` its ``working()``."""
        return MigManager(self, layouts)

    async def users(self, name: str) -> list[str]:
        """The names of the pods on a node that use its GPUs."""
        return [item["metadata"]["name"] for item in await users(self.cluster, name)]


def _spec(resource: str, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {resource: "1"}}}
    return {"containers": [container], "terminationGracePeriodSeconds": 0, **more}


@dataclass
class MigManager:
    """What NVIDIA's MIG manager and device plugin do to a node whose label changes: state, then the offer.

    ``layouts`` maps a label's value to what the node then offers; any other value fails. It refuses, as the
    real one does, while a pod uses the GPU. ``hold`` stops it between pending and the end.
    """

    scene: Scene
    layouts: Mapping[str, Mapping[str, int]]
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    seen: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)  # nodes where it does not run

    def __post_init__(self) -> None:
        self.hold.set()

    async def act(self, name: str, wanted: str) -> None:
        if await self.scene.users(name):
            self.busy.append(name)
            await self.state(name, "failed", "the GPU is in use")
            return
        await self.state(name, "pending")
        await self.hold.wait()
        if wanted not in self.layouts:
            await self.state(name, "failed", f"there is no layout {wanted}")
            return
        live = (await self.scene.node(name))["status"].get("allocatable") or {}
        gone = {key: None for key in live if key.startswith("nvidia.com/")}
        await self.scene.offers(name, {**gone, **self.layouts[wanted]})
        await self.state(name, "success")

    async def state(self, name: str, state: str, warning: str = "") -> None:
        await self.scene.cluster.patch(name, {"metadata": {"labels": {"nvidia.com/mig.config.state": state}}})
        if warning:
            node = {"apiVersion": "v1", "kind": "Node", "name": name}
            meta = {"generateName": "mig-", "namespace": "default"}
            event = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": node}
            event |= {"type": "Warning", "reason": "MIGConfigFailed", "message": warning}
            event |= {"lastTimestamp": "2026-01-01T00:00:00Z"}
            await self.scene.apply("/api/v1/namespaces/default/events", event)

    async def run(self) -> None:
        while True:
            for node in await self.scene.cluster.nodes(self.scene.selector):
                name, wanted = (
                    node["metadata"]["name"],
                    node["metadata"]["labels"].get("nvidia.com/mig.config", ""),
                )
                if wanted != self.seen.get(name, ""):
                    self.seen[name] = wanted
                    if wanted and name not in self.absent:
                        with contextlib.suppress(ApiError):
                            await self.act(name, wanted)
            await asyncio.sleep(0.1)

    @contextlib.asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@pytest.fixture
def play(control_plane: Any) -> Callable[[Callable[[Scene], Any]], None]:
    """Runs ``act(scene)`` in a fresh loop with a fresh pool, whose objects are removed after it."""

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
