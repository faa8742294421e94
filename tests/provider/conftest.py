"""A resource that a test drives on a real API server, inside one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuform.provider.handler import Call, Engine
from gpuform.provider.own.provider import Own
from tests.waiting import PATIENCE


class Log(Engine):
    """Records every text, ephemeral or not."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    async def log(self, text: str, *, severity: int, urn: str = "", ephemeral: bool = False) -> None:
        self.lines.append(text)


@dataclass
class Driven:
    """``name`` is that of its objects; ``inputs`` and ``outputs`` are those of the last run."""

    kubeconfig: str
    name: str
    token: str
    log: Log = field(default_factory=Log)

    def __post_init__(self) -> None:
        self.provider = Own(self.log)
        self.cluster = self.provider._shared().of({"kubeconfig": self.kubeconfig})
        self.client = self.cluster.client
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}

    def wanted(self, **inputs: Any) -> dict[str, Any]:
        """Inputs as a program passes them."""
        raise NotImplementedError

    def call(self, **more: Any) -> Call:
        urn = f"urn:pulumi:dev::t::{self.token}::{self.name}"
        return Call(urn, self.token, self.name, self.log, asyncio.Event(), **more)

    async def ask(self, verb: str, *args: Any, **more: Any) -> Any:
        return await getattr(self.provider.handler(self.token), verb)(self.call(**more), *args)

    async def checked(self, **inputs: Any) -> dict[str, Any]:
        answer = await self.ask("check", self.inputs, self.wanted(**inputs))
        assert not answer.failures, answer.failures
        found: dict[str, Any] = answer.inputs
        return found

    async def create(self, **inputs: Any) -> Any:
        news = await self.checked(**inputs)
        _, self.outputs = await self.ask("create", news)
        self.inputs = news
        return self.outputs

    async def update(self, **inputs: Any) -> Any:
        news = await self.checked(**inputs)
        self.outputs = await self.ask("update", self.name, self.inputs, self.outputs, news)
        self.inputs = news
        return self.outputs

    async def changes(self, **inputs: Any) -> set[str]:
        answer = await self.ask("diff", self.name, self.inputs, self.outputs, await self.checked(**inputs))
        return set(answer.changes)

    async def until(self, question: Callable[[], Any], seconds: float = 20) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds * PATIENCE
        while not (answer := await question()) and loop.time() < deadline:
            await asyncio.sleep(0.05)
        assert answer, "it did not come about"
        return answer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
