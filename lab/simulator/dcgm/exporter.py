"""Answers the scrapes of the nodes' exporters.

All nodes share one port, so a stopped exporter cannot refuse the connection: it answers 503. A node's values
are computed only when it is scraped.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lab.simulator import faults
from lab.simulator.dcgm import exposition
from lab.simulator.dcgm.counters import CountersError
from lab.simulator.dcgm.operand import OPERAND, asked
from lab.simulator.dcgm.rows import rows
from lab.simulator.dcgm.watch import NodeWatch
from lab.simulator.store import Store
from lab.simulator.world import World


class Exporters:
    """The exporters of all nodes; their state is a few hundred bytes per GPU."""

    def __init__(self, store: Store, clock: Callable[[], float] = time.time) -> None:
        """``clock`` returns seconds since 1970."""
        self._store, self._clock = store, clock
        self._watched: dict[str, NodeWatch] = {}

    def scrape(self, name: str) -> tuple[int, str]:
        """HTTP status and text of one node's exporter."""
        node = self._store.nodes.get(name)
        if node is None:
            self._watched.pop(name, None)
            return 404, f"there is no node {name}\n"
        pods = list(self._store.on_node.get(name, {}).values())
        world = World(node, self._store.cluster, pods, claims=self._store.claimed.on(name))
        return self._answer(world, self._clock())

    def _answer(self, world: World, moment: float) -> tuple[int, str]:
        name, pod = world.node.name, world.running(OPERAND)
        watch = self._watch(name)
        try:
            wanted = asked(pod, self._store.config_maps) if pod else None
        except CountersError as error:
            wanted, why = None, str(error)
        else:
            why = "no dcgm-exporter runs on this node"
        if pod is None or wanted is None or faults.breaks(world.node, faults.EXPORTER_DOWN):
            watch.stop(moment)
            return 503, f"{name}: {why}\n"
        watch.begin(world, pod, moment)
        return 200, exposition.text(world, wanted, list(rows(world, watch, moment)), moment)

    def _watch(self, name: str) -> NodeWatch:
        if name not in self._watched and len(self._watched) > len(self._store.nodes):
            self._watched = {n: watch for n, watch in self._watched.items() if n in self._store.nodes}
        return self._watched.setdefault(name, NodeWatch())
