"""Machines, an autoscaler and people beside the health loop, all of which do as they like."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

from infra.incluster.acting import RECORD, REPAIRED
from infra.incluster.cases import RANK, Fault
from infra.incluster.health import KEY, RESET, STATE
from tests.incluster.played_cluster import PlayedCluster, deleted

BURST, FIXED = "burst", "fixed"
DAY_S, HOUR_S, FADES_S = 86400.0, 3600.0, 600.0


@dataclass
class Machine:
    id: str
    pool: str
    broken: str = ""
    until: float = 0.0
    """When its fault is no longer reported."""
    boots: int = 0
    xid: str = "79"
    given_back: bool = False
    follows: float = -DAY_S
    """When the machine that this one replaces was given back (``World._read``)."""
    dark: float = 0.0
    """Until when its exporter is down."""


@dataclass
class World:
    seed: int
    mode: str
    now: float = 0.0
    kinds: dict[str, int] = field(default_factory=dict)
    """How often each thing happened that a test wants to have happened."""

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.cluster = PlayedCluster()
        self.machines: dict[str, Machine] = {}
        """By name of their node."""
        self.reported: dict[str, tuple[Fault, float, str]] = {}
        """Faults by id, until when they are reported, and of which machine."""
        self.gone: list[tuple[float, str, str]] = []
        """When the machine with this id leaves, and its node's name."""
        self.coming: list[tuple[float, float]] = []
        """When a successor joins, and its ``follows``."""
        self.touched: list[tuple[float, str]] = []
        """When (``_read``) the loop cordoned or removed the node of this uid."""
        self.sizes: list[tuple[float, list[float]]] = []
        """``follows`` of each machine, at times (``_read``)."""
        self.joined: dict[str, float] = {}
        """When the node of this uid registered."""
        self.known: dict[str, float] = {}
        """Since when this process of the loop has surely seen the node of this uid."""
        self.wall = self.began = self.ahead = self.trouble = self.silent = self.no_tickets = 0.0
        self.epidemic = 0.0
        self.closes = False
        self.count = 0

    def start(self) -> None:
        """A new process of the loop."""

    def _forgets(self, node: dict[str, Any]) -> None:
        """The object of this node no longer exists."""

    def _excuses(self, name: str) -> None:
        """A person takes the node for repaired."""

    def _mended(self, name: str) -> None:
        """The node may return, once no fault of it is reported."""

    def _read(self) -> float:
        """The time, and by how much the loop's clock has jumped forwards between two processes.

        Such a jump ends a window early; one backwards, or in the life of a process, ends none.
        """
        return self.now + self.ahead

    def _did(self, what: str) -> None:
        self.kinds[what] = self.kinds.get(what, 0) + 1

    def _uid(self, name: str) -> str:
        return str(self.cluster.nodes_by_name[name]["metadata"]["uid"])

    def _breaker(self) -> Any:
        kept = self.cluster.maps.get(STATE)
        return json.loads(kept["data"][KEY])["breaker"] if kept else None

    def _chance(self, each_s: float, step: float) -> bool:
        return self.random.random() < step / each_s

    def _join(
        self, pool: str, name: str = "", machine: Machine | None = None, follows: float = -DAY_S
    ) -> None:
        self.count += 1
        free = [f"{pool}-{number}" for number in range(24) if f"{pool}-{number}" not in self.machines]
        name = name or self.random.choice(free[:4])  # names are soon used again
        if machine is None:  # ids of some begin with the id of another
            others = [one.id for one in self.machines.values() if one.id.count("/") == 3]
            base = others[-1] if others and self.count % 3 == 0 else "aws://"
            machine = Machine(f"{base}/{self.count}", pool, follows=follows)
        self.machines[name] = machine
        self.cluster.add(name, f"uid-{self.count}", pool, machine.id, pool == BURST)
        self.joined[f"uid-{self.count}"] = self.now
        if pool == BURST and not any(_of(claim, machine) for claim in self.cluster.claims.values()):
            meta = {"name": f"claim-{self.count}", "uid": f"claim-{self.count}"}
            status = {"providerID": machine.id, "nodeName": name}
            self.cluster.claims[meta["name"]] = {"metadata": meta, "status": status}
        self._size()

    def _leave(self, name: str) -> None:
        machine = self.machines.pop(name)
        self._forgets(self.cluster.nodes_by_name.pop(name))
        for key, claim in list(self.cluster.claims.items()):
            left = all(claim["status"]["providerID"] != one.id for one in self.machines.values())
            if left and self.random.random() < 0.1:  # most stay for a while
                del self.cluster.claims[key]
        self._fades(machine.id, FADES_S)
        self._size()

    def _size(self) -> None:
        self.sizes = [*self.sizes[-200:], (self._read(), [one.follows for one in self.machines.values()])]

    def _counts_anew(self) -> None:
        """A person has closed the breaker: what was done before does not count, nor do its successors."""
        self.touched.clear()
        self.coming = [(at, -DAY_S) for at, _ in self.coming]
        for machine in self.machines.values():
            machine.follows = -DAY_S
        self.sizes.clear()
        self._size()

    def _fades(self, id: str, seconds: float) -> None:
        last = self.now + seconds
        self.reported = {
            key: (fault, min(until, last) if of == id else until, of)
            for key, (fault, until, of) in self.reported.items()
        }

    def _breaks(self, name: str) -> None:
        machine = self.machines[name]
        kind = self.random.choice(("reset", "replace", "replace"))
        if RANK[kind] >= RANK.get(machine.broken, 0):
            machine.broken = kind
            machine.xid = "79" if kind == "replace" else "48"
        self._reports(name, machine)
        self._did("broke")
        if machine.pool == BURST and self.random.random() < 0.2:  # its autoscaler is faster than the loop
            self._leave(name)
            self._join(BURST, name)

    def _reports(self, name: str, machine: Machine) -> None:
        lasts = self.random.choice((300.0, FADES_S, HOUR_S, 400 * DAY_S))
        fault = Fault(name, "0", f"GPU-{machine.id}", machine.xid, machine.broken, "xid")
        self.reported[fault.id] = (fault, self.now + lasts, machine.id)

    def _repairs(self, name: str) -> None:
        """A person may be wrong about it; then the fault is reported again, sooner or later."""
        machine = self.machines[name]
        self._reboots(name)
        if self.random.random() < 0.9:
            machine.broken = ""
            self._fades(machine.id, 300)
        self._excuses(name)
        self.cluster.annotate(name, **{REPAIRED: "new GPU"})
        self._mended(name)
        self._did("repaired")

    def _reboots(self, name: str) -> None:
        machine = self.machines[name]
        machine.boots += 1
        node = self.cluster.nodes_by_name[name]
        info = {"nodeInfo": {"bootID": f"boot-{machine.boots}"}}
        self.cluster.nodes_by_name[name] = {**node, "status": {**node["status"], **info}}
        self.cluster.touch(name)
        record = json.loads(node["metadata"]["annotations"].get(RECORD, "{}"))
        if machine.broken == "reset":
            machine.broken = ""
            self._fades(machine.id, 300)
        if machine.broken == "" or record.get("class") != machine.broken:
            self._excuses(name)  # a reboot is the first remedy of either class
        if record.get("class") == "reset":
            self._mended(name)

    def _others(self, step: float) -> None:
        for at, own, name in [one for one in self.gone if one[0] <= self.now]:
            self.gone.remove((at, own, name))
            if name in self.machines and self.machines[name].id == own:
                self._leave(name)
        for at, follows in [one for one in self.coming if one[0] <= self.now]:
            self.coming.remove((at, follows))
            self._join(BURST, follows=follows)
        self._autoscales(step)
        for name in list(self.machines):
            self._people(name, step)
        names = list(self.machines)
        ill = self.now < self.epidemic
        if names and self._chance(HOUR_S / 4 if ill else 8 * HOUR_S, step):
            elastic = [name for name in names if ill and self.machines[name].pool == BURST]
            self._breaks(self.random.choice(elastic or names))
        if names and self._chance(30 * DAY_S, step):  # many at once
            for name in self.random.sample(names, len(names) // 2):
                self._breaks(name)
        for length, each, what in (
            (HOUR_S, DAY_S, "trouble"),
            (HOUR_S, DAY_S, "silent"),
            (4 * HOUR_S, DAY_S, "no_tickets"),
            (4 * HOUR_S, DAY_S, "epidemic"),
        ):
            if self._chance(each, step):
                setattr(self, what, self.now + self.random.random() * length)
        if self._chance(2 * HOUR_S, step):
            self.wall = self.random.uniform(-3, 3) * HOUR_S
        if self._chance(4 * HOUR_S, step):
            self.start()
        kept = self.cluster.maps.get(STATE)
        if kept and json.loads(kept["data"][KEY])["breaker"] and self._chance(HOUR_S, step):
            kept["metadata"].setdefault("annotations", {})[RESET] = "checked"
            self.closes = True

    def _autoscales(self, step: float) -> None:
        own = {
            pool: [name for name, one in self.machines.items() if one.pool == pool] for pool in (BURST, FIXED)
        }
        for pool, names in own.items():
            if len(names) < 12 and self._chance(6 * HOUR_S, step):
                self._join(pool)
            if len(names) > 2 and self._chance(3 * HOUR_S, step):
                ill = [name for name in names if self.cluster.taint(name)]
                name = self.random.choice(ill if ill and self.random.random() < 0.5 else names)
                self._leave(name)
                if self.random.random() < 0.5:
                    self._join(pool, name)  # at once, under the same name
        if own[BURST] and self._chance(DAY_S, step):  # the autoscaler's own deletion
            name = self.random.choice(own[BURST])
            for key, claim in self.cluster.claims.items():
                if name in self.machines and _of(claim, self.machines[name]):
                    self.cluster.claims[key] = deleted(claim)
                    self.gone.append((self.now + HOUR_S, self.machines[name].id, name))
                    self.coming.append((self.now + HOUR_S, -DAY_S))

    def _people(self, name: str, step: float) -> None:
        node = self.cluster.nodes_by_name[name]
        if self._chance(6 * HOUR_S, step) and self.cluster.taint(name):
            self._repairs(name)
        elif self._chance(4 * DAY_S, step):
            self._reboots(name)
        elif self._chance(4 * DAY_S, step):
            self.cluster.touch(name, unschedulable=not node["spec"].get("unschedulable"))
        elif self._chance(4 * DAY_S, step):
            self.cluster.touch(name, taints=[])
        elif self._chance(8 * DAY_S, step):
            pinned = node["metadata"]["annotations"].get("karpenter.sh/do-not-disrupt")
            self.cluster.annotate(name, **{"karpenter.sh/do-not-disrupt": None if pinned else "true"})
        elif self._chance(8 * DAY_S, step):  # its object is deleted, and the kubelet registers again
            self._forgets(node)
            self._join(self.machines[name].pool, name, self.machines[name])
        elif self._chance(DAY_S, step):
            self.machines[name].dark = self.now + self.random.random() * HOUR_S
        elif self._chance(2 * DAY_S, step) and self.machines[name].broken:
            self._reports(name, self.machines[name])


def _of(claim: dict[str, Any], machine: Machine) -> bool:
    return bool(claim["status"]["providerID"] == machine.id)
