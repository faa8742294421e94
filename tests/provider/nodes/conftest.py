from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from gpuform.provider.handler import Call
from gpuform.provider.nodes.drain import gpu_pods
from gpuform.provider.nodes.layout import CONFIG, NOTE
from tests.provider.conftest import ResourceDriver

_numbers = itertools.count()


class PoolDriver(ResourceDriver):
    """A pool of fresh nodes with its own label."""

    @property
    def selector(self) -> str:
        return f"pool={self.name}"

    def declare(self, **inputs: Any) -> dict[str, Any]:
        return {"kubeconfig": self.kubeconfig, "selector": self.selector, **inputs}

    async def add_node(
        self, name: str, labels: Mapping[str, str] | None = None, ready: bool = True, **spec: Any
    ) -> str:
        node_name = f"{self.name}-{name}"
        notes = {
            **({"kwok.x-k8s.io/node": "fake"} if ready else {}),
            "simulator.gpuform.io/cpu": "8",
            "simulator.gpuform.io/memory": "32Gi",
        }
        meta = {"name": node_name, "labels": {"pool": self.name, **(labels or {})}, "annotations": notes}
        body = {"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec}
        await self.client.request("POST", "/api/v1/nodes", body=body)
        return node_name

    async def node(self, name: str) -> Any:
        return await self.client.get(f"/api/v1/nodes/{name}")

    def writes(self) -> list[tuple[str, str]]:
        """Method and path of every later request except GET; the list fills as they are sent."""
        requests: list[tuple[str, str]] = []
        send = self.client.request

        async def request(method: str, path: str, **more: Any) -> Any:
            if method != "GET":
                requests.append((method, path))
            return await send(method, path, **more)

        self.client.request = request  # type: ignore[method-assign]
        return requests

    async def is_open(self, name: str) -> bool:
        node = await self.node(name)
        return not node["spec"].get("unschedulable") and NOTE not in node["metadata"]["annotations"]

    async def layout(self, name: str) -> str | None:
        """The label of the layout on an open node, None without it; "closed" on a closed one."""
        config: str | None = (await self.labels(name)).get(CONFIG)
        return config if await self.is_open(name) else "closed"

    async def labels(self, name: str) -> Any:
        return (await self.node(name))["metadata"]["labels"]

    async def offers(self, name: str, resources: Mapping[str, int | None]) -> None:
        """Set what the node offers, as its kubelet would; None removes a resource."""
        body = {"status": {key: dict(resources) for key in ("allocatable", "capacity")}}
        await self.client.request(
            "PATCH", f"/api/v1/nodes/{name}/status", body=body, content_type="application/merge-patch+json"
        )

    async def apply(self, path: str, body: Any) -> None:
        await self.client.request("POST", path, body=body)

    async def pod(self, name: str, node: str, resource: str, **more: Any) -> None:
        """A pod on ``node`` that requests one ``resource`` and runs: its devices are set."""
        meta = {
            "name": name,
            "labels": {"pool": self.name},
            "annotations": {"simulator.gpuform.io/devices": "0"},
        }
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**meta, **more},
            "spec": _spec(resource, nodeName=node),
        }
        await self.apply("/api/v1/namespaces/default/pods", body)

    async def mig_manager(self, node: str, config_map: str) -> str:
        """A pod of NVIDIA's MIG manager with the layouts of this ConfigMap; returns its path."""
        name = f"mig-manager-{config_map}-{node}"
        volume = {"name": "layouts", "configMap": {"name": config_map}}
        spec = {**_spec("cpu"), "nodeName": node, "volumes": [volume]}
        meta = {"name": name, "labels": {"app": "nvidia-mig-manager", "pool": self.name}}
        await self.apply("/api/v1/namespaces/default/pods", {"metadata": meta, "spec": spec})
        return f"/api/v1/namespaces/default/pods/{name}"

    async def deploy(self, resource: str, replicas: int = 1) -> None:
        labels = {"pool": self.name, "app": self.name}
        meta = {"labels": labels, "annotations": {"simulator.gpuform.io/devices": "0"}}
        template = {"metadata": meta, "spec": _spec(resource, nodeSelector={"pool": self.name})}
        spec = {"replicas": replicas, "selector": {"matchLabels": {"app": self.name}}, "template": template}
        body = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": self.name, "labels": labels},
        }
        await self.apply("/apis/apps/v1/namespaces/default/deployments", {**body, "spec": spec})

    async def run(self, node: str, resource: str, replicas: int = 1) -> list[str]:
        """Names of the pods of a Deployment, once all of them run on the node."""
        await self.deploy(resource, replicas)
        return await self.all_running(node, replicas)

    async def all_running(self, node: str, number: int) -> list[str]:
        async def found() -> list[str]:
            names = await self.running(node)
            return names if len(names) == number else []

        names: list[str] = await self.until(found)
        return names

    async def budget(self, minimum: int) -> None:
        spec = {"minAvailable": minimum, "selector": {"matchLabels": {"app": self.name}}}
        meta = {"name": f"budget-{self.name}", "labels": {"pool": self.name}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}
        await self.apply("/apis/policy/v1/namespaces/default/poddisruptionbudgets", body)

    async def running(self, name: str) -> list[str]:
        pods = await self.cluster.pods(name)
        return [
            pod["metadata"]["name"] for pod in pods if (pod.get("status") or {}).get("phase") == "Running"
        ]

    async def gpu_pods(self, name: str) -> list[str]:
        return [pod["metadata"]["name"] for pod in await gpu_pods(self.cluster, name)]


def _spec(resource: str, **more: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"limits": {resource: "1"}}}
    return {"containers": [container], "terminationGracePeriodSeconds": 0, **more}


@pytest.fixture
async def pool(
    control_plane: Any, anyio_backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PoolDriver]:
    """A fresh pool, driven by the module's ``TOKEN``; its objects are removed afterwards.

    Pauses between two looks at a node are short here; time limits are those of the product.
    """
    sleep = Call.sleep
    monkeypatch.setattr(Call, "sleep", lambda call, seconds: sleep(call, min(seconds, 0.1)))
    pool = PoolDriver(control_plane.kubeconfig.read_text(), f"pool-{next(_numbers)}", request.module.TOKEN)
    yield pool
    for path in (
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/apis/apps/v1/namespaces/default/deployments",
        "/api/v1/namespaces/default/pods",
        "/api/v1/nodes",
    ):
        await pool.cluster.client.request("DELETE", path, params={"labelSelector": pool.selector})
    await pool.provider.close()
