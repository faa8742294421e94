"""Scrapes without a cluster: a store with one node, a clock that tests set, and the text parsed."""

from __future__ import annotations

import re
from typing import Any

from lab.simulator.api import Api
from lab.simulator.dcgm.exporter import Exporters
from lab.simulator.faults import Fault, stored
from lab.simulator.keys import FAULTS
from lab.simulator.store import Store
from lab.simulator.world import World

START = 1_800_000_000.0
_SAMPLE = re.compile(r"^(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Bench:
    def __init__(self, world: World) -> None:
        self.now = START
        api: Api = None  # type: ignore[assignment]  # a store that follows nothing
        self.store = Store(api, lambda _: None)
        self.exporters = Exporters(self.store, lambda: self.now)
        self.put(world)

    def put(self, world: World) -> None:
        self.world = world
        name = world.node.name
        self.store.nodes[name] = world.node
        self.store.on_node[name] = {(pod.namespace, pod.name): pod for pod in world.pods}

    def broken(self, *faults: Fault) -> None:
        self.world.node.annotations.pop(FAULTS, None)
        text = stored(faults)
        if text:
            self.world.node.annotations[FAULTS] = text

    def scrape(self, after: float = 0.0) -> Series:
        """All samples of the node's exporter, ``after`` seconds later."""
        self.now += after
        status, text = self.exporters.scrape(self.world.node.name)
        assert status == 200, text
        return Series(text)


class Series:
    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: list[tuple[str, dict[str, str], float]] = []
        for line in text.splitlines():
            if not line.startswith("#"):
                found = _SAMPLE.match(line)
                assert found, line
                labels = dict(_LABEL.findall(found["labels"]))
                self.samples.append((found["name"], labels, float(found["value"])))

    def of(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """Labels and values of a series, filtered by ``labels``; DCGM prefixes may be omitted."""
        return [
            (found, value)
            for series, found, value in self.samples
            if series in (name, f"DCGM_FI_DEV_{name}", f"DCGM_FI_PROF_{name}", f"DCGM_EXP_{name}")
            and labels.items() <= found.items()
        ]

    def one(self, name: str, **labels: str) -> float:
        """Value of the only such sample."""
        ((_, value),) = self.of(name, **labels)
        return value

    @property
    def names(self) -> set[str]:
        return {name for name, _, _ in self.samples}


def all_counters(*names: Any) -> str:
    return "".join(f"{name}, gauge, of a test\n" for name in names)
