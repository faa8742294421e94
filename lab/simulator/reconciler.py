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
    operands.label,
    operands.act,
    operands.validate,
    gfd.act,
    mig_manager.act,
    memory.limit,
    dra.act,
    device_plugin.act,
    kubelet.report,
    kubelet.act,
    container_engine.act,
    memory.act,
)


def acting(world: World) -> tuple[Callable[[World], list[Action]], ...]:
    """What may act on the node: all operands, or none on a node that is down."""
    if power.down(world):
        return (power.act,)
    return () if container_engine.down(world) else OPERANDS


class Reconciler:
    """A queue of node names and a few workers; one worker at a time reconciles a node."""

    def __init__(self, api: Api, helper: NvidiaConfig) -> None:
        self.store = Store(api, self.changed)
        self._executor = Executor(api, self.store)
        self._helper = helper
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._stopped: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self._expired: dict[str, set[str]] = {}

    def changed(self, names: Iterable[str]) -> None:
        for name in names:
            if name in self._busy:
                self._again.add(name)
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
                retry = 0.0 if await self._look(name) else 2.0
            except (httpx.HTTPError, HelperError) as error:
                log.warning("%s: %s: %s; again in 2 s", name, type(error).__name__, error)
                retry = 2.0
            except Exception:  # one broken node must not stop the others
                log.exception("%s: ignored until it changes", name)
            self._busy.discard(name)
            if name in self._again:
                self._again.discard(name)
                self.changed((name,))
            if retry:
                asyncio.get_running_loop().call_later(retry, self.changed, (name,))

    async def _look(self, name: str) -> bool:
        """False if an action has to be retried."""
        node = self.store.nodes.get(name)
        pods = list(self.store.on_node.get(name, {}).values())
        if node is None or not self.store.knows(pods):
            return True
        found = await configs.resolve(node, pods, self.store.config_maps, self._helper)
        claimed, expired = self.store.claimed, frozenset(self._expired.get(name, ()))
        world = World(
            node, self.store.cluster, pods, found, expired, claimed.slices.get(name), claimed.on(name)
        )
        self._watch_stopped(world)
        done = True
        for operand in acting(world):
            for action in operand(world):
                done = await self._executor.carry_out(node, action) and done
        return done

    def _watch_stopped(self, world: World) -> None:
        """Start the kubelet's grace period for resources without a plugin; end it for those offered again."""
        offered = device_plugin.offered(world) | device_plugin.adapters(world)
        for resource, count in world.node.capacity.items():
            self._wait(world, resource, resource in offered, bool(count), STOP_GRACE)
        runs, published = world.running(dra.OPERAND) is not None, world.published is not None
        self._wait(world, dra.DRIVER, runs, published, dra.WIPED_AFTER)

    def _wait(self, world: World, what: str, there: bool, missed: bool, grace: float) -> None:
        name = world.node.name
        key = (name, what)
        if there:
            self._expired.get(name, set()).discard(what)
            if key in self._stopped:
                self._stopped.pop(key).cancel()
        elif missed and key not in self._stopped and what not in world.expired:
            loop = asyncio.get_running_loop()
            self._stopped[key] = loop.call_later(grace, self._expire, name, what)

    def _expire(self, name: str, resource: str) -> None:
        self._stopped.pop((name, resource), None)
        self._expired.setdefault(name, set()).add(resource)
        self.changed((name,))
