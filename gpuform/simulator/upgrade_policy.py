"""What the release says of driver upgrades: ``driver.upgradePolicy`` of NVIDIA's chart, and who may begin."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

REQUIRED, CORDON, DONE = "upgrade-required", "cordon-required", "upgrade-done"


@dataclass(frozen=True, slots=True)
class Removal:
    """Which pods may be evicted: ``force``: that nobody would make again; ``scratch``: with an emptyDir."""

    force: bool
    scratch: bool
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Policy:
    """``parallel`` 0 is no limit; ``unavailable`` is a number or a percentage of the nodes, "" for all.

    ``wait_for`` selects pods whose end is waited for. ``drain`` None: no drain is tried.
    """

    parallel: int
    unavailable: str
    wait_for: str
    deletion: Removal
    drain: Removal | None

    def at_once(self, nodes: int) -> int:
        """How many of so many nodes may be unavailable; percentages are rounded up."""
        if not self.unavailable:
            return nodes
        number = int(self.unavailable.removesuffix("%"))
        return -(-nodes * number // 100) if self.unavailable.endswith("%") else number


@dataclass(frozen=True, slots=True)
class Managed:
    """A node with a state; ``skip``: its label says that it is left alone."""

    name: str
    state: str
    available: bool
    cordoned: bool
    skip: bool


def read(text: str) -> Policy | None:
    """The policy as our chart hands it over; None where ``autoUpgrade`` is off or there is none."""
    raw = json.loads(text) if text else {}
    if not raw.get("autoUpgrade"):
        return None
    drain, unavailable = raw.get("drain") or {}, raw.get("maxUnavailable")
    return Policy(
        parallel=int(raw.get("maxParallelUpgrades", 1)),
        unavailable="" if unavailable is None else str(unavailable),
        wait_for=(raw.get("waitForCompletion") or {}).get("podSelector", ""),
        deletion=_removal(raw.get("gpuPodDeletion") or {}),
        drain=_removal(drain) if drain.get("enable") else None,
    )


def _removal(raw: Mapping[str, Any]) -> Removal:
    return Removal(bool(raw.get("force")), bool(raw.get("deleteEmptyDir")), raw.get("podSelector", ""))


def admitted(nodes: Iterable[Managed], policy: Policy) -> list[str]:
    """Nodes that may begin now, in the order of their names.

    NVIDIA's rule: as many as are allowed at once, and never more unavailable nodes than allowed, whatever
    made them so; a node that somebody has cordoned already costs nothing and may always begin.
    """
    every = sorted(nodes, key=lambda node: node.name)
    waiting = [node for node in every if node.state == REQUIRED]
    busy = sum(node.state not in (REQUIRED, DONE) for node in every)
    slots = policy.parallel - busy if policy.parallel else len(waiting)
    limit = policy.at_once(len(every))
    away = sum(not node.available for node in every) + sum(node.state == CORDON for node in every)
    slots = 0 if away >= limit else min(slots, limit - away if limit < len(every) else limit)
    found = []
    for node in waiting:
        if node.skip or (slots <= 0 and not node.cordoned):
            continue
        found.append(node.name)
        slots -= 1
    return found


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Whether a selector of ``key``, ``key=value`` and ``key!=value`` matches; it knows no sets."""
    return all(_term(term.strip(), labels) for term in selector.split(",") if term.strip())


def _term(term: str, labels: Mapping[str, str]) -> bool:
    key, differs, value = term.partition("!=")
    if differs:
        return labels.get(key.strip()) != value.strip()
    key, equals, value = term.replace("==", "=").partition("=")
    return labels.get(key.strip()) == value.strip() if equals else key in labels
