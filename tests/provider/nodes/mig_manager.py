"""A minimal stand-in for NVIDIA's MIG manager and device plugin."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

from gpuform.kubernetes.client import ApiError
from tests.provider.nodes.conftest import PoolDriver

SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"
LAYOUTS = {"small": {SMALL: 7, "nvidia.com/gpu": 0}, "large": {LARGE: 2}}
TO_SMALL = {"config": "small", "offers": {SMALL: 7}, "timeoutSeconds": 15}
TO_LARGE = {"config": "large", "offers": {LARGE: 2}, "timeoutSeconds": 15}
OPERAND, PAUSED = "nvidia.com/gpu.deploy.device-plugin", "paused-for-mig-change"


@dataclass
class MigManager:
    """Plays them on a node when its label changes: first the state label, then the offer.

    ``layouts`` maps a label's value to what the node then offers; any other value fails. Like the real one it
    refuses while a pod uses the GPU. ``hold`` stops it between pending and the end. ``gives_up`` is how often
    it leaves the operand paused and the state at ``stops_at``, as mig-parted 0.15 does without an error.
    """

    pool: PoolDriver
    layouts: Mapping[str, Mapping[str, int]]
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    seen: dict[str, str] = field(default_factory=dict)
    busy: list[str] = field(default_factory=list)
    absent: set[str] = field(default_factory=set)  # nodes where it does not run
    gives_up: int = 0
    stops_at: str = "pending"
    attempts: int = 0

    def __post_init__(self) -> None:
        self.hold.set()

    async def act(self, name: str, layout: str) -> None:
        if await self.pool.gpu_pods(name):
            self.busy.append(name)
            await self.state(name, "failed", "the GPU is in use")
            return
        await self.state(name, "pending")
        await self.operand(name, PAUSED)
        self.attempts += 1
        if self.attempts <= self.gives_up:
            await self.state(name, self.stops_at)
            return
        await self.hold.wait()
        if layout not in self.layouts:
            await self.state(name, "failed", f"there is no layout {layout}")
            return
        offered = (await self.pool.node(name))["status"].get("allocatable") or {}
        removed = {key: None for key in offered if key.startswith("nvidia.com/")}
        await self.pool.offers(name, {**removed, **self.layouts[layout]})
        await self.operand(name, "true")
        await self.state(name, "success")

    async def operand(self, name: str, value: str) -> None:
        await self.pool.cluster.patch(name, {"metadata": {"labels": {OPERAND: value}}})

    async def state(self, name: str, state: str, warning: str = "") -> None:
        await self.pool.cluster.patch(name, {"metadata": {"labels": {"nvidia.com/mig.config.state": state}}})
        if warning:
            node = {"apiVersion": "v1", "kind": "Node", "name": name}
            meta = {"generateName": "mig-", "namespace": "default"}
            event = {"apiVersion": "v1", "kind": "Event", "metadata": meta, "involvedObject": node}
            event |= {"type": "Warning", "reason": "MIGConfigFailed", "message": warning}
            event |= {"lastTimestamp": "2026-01-01T00:00:00Z"}
            await self.pool.apply("/api/v1/namespaces/default/events", event)

    async def run(self) -> None:
        while True:
            for node in await self.pool.cluster.nodes(self.pool.selector):
                name, layout = (
                    node["metadata"]["name"],
                    node["metadata"]["labels"].get("nvidia.com/mig.config", ""),
                )
                if layout != self.seen.get(name, ""):
                    self.seen[name] = layout
                    if layout and name not in self.absent:
                        with contextlib.suppress(ApiError):
                            await self.act(name, layout)
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
