"""A resource that a test drives on a real API server, inside one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuform.kubernetes.client import Client
from gpuform.provider.handler import Call, Engine
from gpuform.provider.nodes.cluster import Cluster, Clusters
from gpuform.provider.own.provider import GpuformProvider
from tests.fakes.client import FakeClient
from tests.waiting import PATIENCE


class Log(Engine):
    """Records every text, ephemeral or not."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    async def log(self, text: str, *, severity: int, urn: str = "", ephemeral: bool = False) -> None:
        self.lines.append(text)


def call_for(token: str, log: Engine | None = None, name: str = "r", **more: Any) -> Call:
    """A call of the engine for one resource."""
    urn = f"urn:pulumi:dev::t::{token}::{name}"
    return Call(urn, token, name, log or Engine(), asyncio.Event(), **more)


def provider_of(client: FakeClient) -> GpuformProvider:
    """The provider with this cluster, whatever the kubeconfig."""
    provider = GpuformProvider(Engine())
    provider._clusters = cast(Clusters, SimpleNamespace(get=lambda inputs: Cluster(cast(Client, client))))
    return provider


@dataclass
class ResourceDriver:
    """``name`` is that of its objects; ``inputs`` and ``outputs`` are those of the last run."""

    kubeconfig: str
    name: str
    token: str
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        self.provider = GpuformProvider(self.log)
        self.cluster = self.provider._shared().get({"kubeconfig": self.kubeconfig})
        self.client = self.cluster.client
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}

    def declare(self, **inputs: Any) -> dict[str, Any]:
        """Inputs as a program passes them."""
        raise NotImplementedError

    def call(self, **more: Any) -> Call:
        return call_for(self.token, self.log, self.name, **more)

    async def invoke(self, verb: str, *args: Any, **more: Any) -> Any:
        return await getattr(self.provider.handler(self.token), verb)(self.call(**more), *args)

    async def check(self, **inputs: Any) -> dict[str, Any]:
        answer = await self.invoke("check", self.inputs, self.declare(**inputs))
        assert not answer.failures, answer.failures
        result: dict[str, Any] = answer.inputs
        return result

    async def create(self, **inputs: Any) -> Any:
        news = await self.check(**inputs)
        _, self.outputs = await self.invoke("create", news)
        self.inputs = news
        return self.outputs

    async def update(self, **inputs: Any) -> Any:
        news = await self.check(**inputs)
        self.outputs = await self.invoke("update", self.name, self.inputs, self.outputs, news)
        self.inputs = news
        return self.outputs

    async def preview(self, **inputs: Any) -> Any:
        """The outputs of an update in a preview."""
        news = await self.check(**inputs)
        return await self.invoke("update", self.name, self.inputs, self.outputs, news, preview=True)

    async def read(self) -> Any:
        return await self.invoke("read", self.name, self.inputs, self.outputs)

    async def delete(self) -> None:
        await self.invoke("delete", self.name, self.inputs, self.outputs)

    async def changes(self, **inputs: Any) -> set[str]:
        answer = await self.invoke("diff", self.name, self.inputs, self.outputs, await self.check(**inputs))
        return set(answer.changes)

    async def until(self, condition: Callable[[], Any], seconds: float = 20) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds * PATIENCE
        while not (result := await condition()) and loop.time() < deadline:
            await asyncio.sleep(0.05)
        assert result, "it did not come about"
        return result


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
