"""What the health loop has recorded in the cluster: unhealthy nodes, its circuit breaker, tickets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.kubeconfigs import answered
from infra.model import labels
from infra.model.health import HEALTH

Json = Mapping[str, Any]

STATE = "gpu-health-state"
"""ConfigMap with the loop's state, and the key in it (infra/incluster/health.py has the same names)."""
KEY = "state.json"
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_NAME = 253
"""A node's name is a DNS subdomain (apimachinery, pkg/util/validation, IsDNS1123Subdomain)."""


@dataclass(frozen=True)
class Unhealthy:
    """A node with the loop's taint; ``repaired`` is what a person noted about its repair."""

    name: str
    pool: str
    kind: str
    since: str
    why: str
    repaired: str | None


@dataclass(frozen=True)
class Ticket:
    """A repair ticket for a person; ``files`` maps file names to texts."""

    node: str
    open: bool
    files: Mapping[str, str]


@dataclass(frozen=True)
class Seen:
    """Nodes, tickets and breaker; ``breaker`` is the reason why it opened, None while the loop acts."""

    nodes: tuple[Unhealthy, ...]
    tickets: tuple[Ticket, ...]
    breaker: str | None
    withheld: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "breaker": {
                "open": self.breaker is not None,
                "why": self.breaker,
                "withheld": list(self.withheld),
            },
            "nodes": [asdict(node) for node in self.nodes],
            "tickets": [{"node": one.node, "open": one.open} for one in self.tickets],
        }


def fetch(kubeconfig: Path, context: str | None = None) -> Seen:
    """Read nodes and ConfigMaps. Raises httpx errors if the cluster is unreachable, OSError if it refuses."""
    from kr8s.objects import ConfigMap, Node

    from gpuform.kubernetes import session

    with answered():
        api = session.api(kubeconfig, context)
        nodes = [one for one in Node.list(api=api, label_selector=labels.POOL) if isinstance(one, Node)]
        maps = [one for one in ConfigMap.list(api=api, namespace=HEALTH) if isinstance(one, ConfigMap)]
    return read([dict(one.raw) for one in nodes], [dict(one.raw) for one in maps])


def read(nodes: Iterable[Json], maps: Iterable[Json]) -> Seen:
    """Parse nodes and ConfigMaps; results are sorted by node."""
    tickets, kept = [], dict[str, Any]()
    for one in maps:
        state = one["metadata"].get("labels", {}).get(labels.TICKET)
        if state is not None:
            node = json.loads(one["data"]["ticket.json"])["node"]
            tickets.append(Ticket(node, state == "open", dict(one["data"])))
        elif one["metadata"]["name"] == STATE:
            kept = json.loads(one["data"][KEY])
    breaker = kept.get("breaker")
    return Seen(
        nodes=tuple(
            sorted((found for node in nodes if (found := _unhealthy(node))), key=lambda one: one.name)
        ),
        tickets=tuple(sorted(tickets, key=lambda one: one.node)),
        breaker=breaker["why"] if breaker else None,
        withheld=tuple(breaker["withheld"]) if breaker else (),
    )


def _unhealthy(node: Json) -> Unhealthy | None:
    taints = {one["key"]: one.get("value", "") for one in node["spec"].get("taints") or ()}
    if labels.GPU_UNHEALTHY not in taints:
        return None
    meta = node["metadata"]
    conditions = {one["type"]: one for one in node.get("status", {}).get("conditions") or ()}
    said = conditions.get(labels.GPU_UNHEALTHY_CONDITION, {})
    return Unhealthy(
        name=meta["name"],
        pool=meta["labels"].get(labels.POOL, ""),
        kind=taints[labels.GPU_UNHEALTHY],
        since=said.get("lastTransitionTime", ""),
        why=said.get("message", ""),
        repaired=(meta.get("annotations") or {}).get(labels.GPU_REPAIRED),
    )


def write(tickets: Iterable[Ticket], folder: Path) -> list[Path]:
    """Write a Markdown file for each ticket; existing files are overwritten.

    Raises Failure, and writes nothing, if a ticket's node has a name that no node can have: it is part of the
    file's path, and whoever may write ConfigMaps chooses it.
    """
    tickets = list(tickets)
    for one in tickets:
        if not _NODE.fullmatch(one.node) or len(one.node) > _LONGEST_NAME:
            fact = f"{one.node[:_LONGEST_NAME]!r} is not the name of a node"
            raise Failure("ticket", fact, f"look at its ConfigMap in {HEALTH}, and delete it")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for one in tickets:
        file = folder / f"{one.node}.md"
        file.write_text(one.files["ticket.md"], encoding="utf-8")
        written.append(file)
    return written
