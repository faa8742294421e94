"""Reconciles nodes as they change: every operand acts on the node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import httpx

from lab.simulator import (
    configs,
    container_engine,
    device_plugin,
    dra,
    gfd,
    kubelet,
    memory,
    mig_manager,
    operands,
    power,
)
from lab.simulator.actions import Action
from lab.simulator.api import Api
from lab.simulator.configs import HelperError, NvidiaConfig
from lab.simulator.executor import Executor
from lab.simulator.store import Store
from lab.simulator.world import World

log = logging.getLogger("simulator")
WORKERS = 8
STOP_GRACE = 300.0
"""Seconds for which the kubelet keeps a resource's capacity after its plugin has gone."""

OPERANDS: tuple[Callable[[World], list[Action]], ...] = (
    gfd.features,
    operands.set_labels,
    operands.act,
    operands.start_validation,
    gfd.act,
    mig_manager.act,
    memory.write_limits,
    dra.act,
    device_plugin.act,
    kubelet.report_resources,
    kubelet.act,
    container_engine.act,
    memory.act,
)


def acting_operands(world: World) -> tuple[Callable[[World], list[Action]], ...]:
    """What may act on the node: all operands, or none on a node that is down."""
    if power.is_down(world):
        return (power.act,)
    return () if container_engine.is_down(world) else OPERANDS


class Reconciler:
    """A queue of node names and a few workers; one worker at a time reconciles a node."""

    def __init__(self, api: Api, helper: NvidiaConfig) -> None:
        self.store = Store(api, self.enqueue)
        self._executor = Executor(api, self.store)
        self._helper = helper
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._busy: set[str] = set()
        self._changed_again: set[str] = set()
        self._stopped: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._expired: dict[str, set[str]] = {}

    def enqueue(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._busy:
                self._changed_again.add(name)
            elif name and name not in self._queued:
                self._queued.add(name)
                self._queue.put_nowait(name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.store.run())
            for _ in range(WORKERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            name = await self._queue.get()
            self._queued.discard(name)
            self._busy.add(name)
            retry = 0.0
            try:
                retry = 0.0 if await self._reconcile(name) else 2.0
            except (httpx.HTTPError, HelperError) as error:
                log.warning("%s: %s: %s; again in 2 s", name, type(error).__name__, error)
                retry = 2.0
            except Exception:  # one broken node must not stop the others
                log.exception("%s: ignored until it changes", name)
            self._busy.discard(name)
            if name in self._changed_again:
                self._changed_again.discard(name)
                self.enqueue((name,))
            if retry:
                asyncio.get_running_loop().call_later(retry, self.enqueue, (name,))

    async def _reconcile(self, name: str) -> bool:
        """False if an action has to be retried."""
        node = self.store.nodes.get(name)
        pods = list(self.store.on_node.get(name, {}).values())
        if node is None or not self.store.has_listed(pods):
            return True
        resolved = await configs.resolve(node, pods, self.store.config_maps, self._helper)
        claimed, expired = self.store.claimed, frozenset(self._expired.get(name, ()))
        published, claims = claimed.slices.get(name), claimed.claims_on(name)
        features = self.store.features.labels
        world = World(node, self.store.cluster, pods, resolved, expired, published, features, claims)
        self._watch_stopped(world)
        is_done = True
        for operand in acting_operands(world):
            for action in operand(world):
                is_done = await self._executor.carry_out(node, action) and is_done
        return is_done

    def _watch_stopped(self, world: World) -> None:
        """Start the kubelet's grace period for resources without a plugin; end it for those offered again."""
        offered = device_plugin.offered_devices(world) | device_plugin.efa_adapters(world)
        for resource, count in world.node.capacity.items():
            self._track_absence(world, resource, resource in offered, bool(count), STOP_GRACE)
        is_running, published = world.running(dra.OPERAND) is not None, world.published is not None
        self._track_absence(world, dra.DRIVER, is_running, published, dra.SLICE_GRACE_S)

    def _track_absence(
        self, world: World, resource: str, is_present: bool, was_present: bool, grace_s: float
    ) -> None:
        name = world.node.name
        key = (name, resource)
        if is_present:
            self._expired.get(name, set()).discard(resource)
            if key in self._stopped:
                self._stopped.pop(key).cancel()
        elif was_present and key not in self._stopped and resource not in world.expired:
            loop = asyncio.get_running_loop()
            self._stopped[key] = loop.call_later(grace_s, self._expire, name, resource)

    def _expire(self, name: str, resource: str) -> None:
        self._stopped.pop((name, resource), None)
        self._expired.setdefault(name, set()).add(resource)
        self.enqueue((name,))
