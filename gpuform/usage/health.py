"""What the health loop has recorded in the cluster: unhealthy nodes, its circuit breaker, tickets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import Failure
from infra.model.base import labels
from infra.model.base.namespaces import HEALTH

Json = Mapping[str, Any]

STATE = "gpu-health-state"
"""ConfigMap with the loop's state, and the key in it (infra/incluster/health.py has the same names)."""
KEY = "state.json"
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LONGEST_NAME = 253
"""A node's name is a DNS subdomain (apimachinery, pkg/util/validation, IsDNS1123Subdomain)."""


@dataclass(frozen=True)
class UnhealthyNode:
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
class HealthStatus:
    """Nodes, tickets and breaker; ``breaker`` is the reason why it opened, None while the loop acts."""

    nodes: tuple[UnhealthyNode, ...]
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
            "tickets": [{"node": ticket.node, "open": ticket.open} for ticket in self.tickets],
        }


def fetch_health(kubeconfig: Path, context: str | None = None) -> HealthStatus:
    """Read nodes and ConfigMaps; OSError if the cluster does not answer, or refuses."""
    from gpuform.kubernetes.cluster import Reader
    from gpuform.kubernetes.kinds import CONFIG_MAP, NODE

    with Reader(kubeconfig, context) as cluster:
        nodes = cluster.list_objects(NODE, labelSelector=labels.POOL)
        return parse_health(nodes, cluster.list_objects(CONFIG_MAP, HEALTH))


def parse_health(nodes: Iterable[Json], maps: Iterable[Json]) -> HealthStatus:
    """Parse nodes and ConfigMaps; results are sorted by node."""
    tickets, loop_state = [], dict[str, Any]()
    for item in maps:
        label = item["metadata"].get("labels", {}).get(labels.TICKET)
        if label is not None:
            node = json.loads(item["data"]["ticket.json"])["node"]
            tickets.append(Ticket(node, label == "open", dict(item["data"])))
        elif item["metadata"]["name"] == STATE:
            loop_state = json.loads(item["data"][KEY])
    breaker = loop_state.get("breaker")
    return HealthStatus(
        nodes=tuple(
            sorted((found for node in nodes if (found := _parse_unhealthy(node))), key=lambda item: item.name)
        ),
        tickets=tuple(sorted(tickets, key=lambda ticket: ticket.node)),
        breaker=breaker["why"] if breaker else None,
        withheld=tuple(breaker["withheld"]) if breaker else (),
    )


def _parse_unhealthy(node: Json) -> UnhealthyNode | None:
    taints = {taint["key"]: taint.get("value", "") for taint in node["spec"].get("taints") or ()}
    if labels.GPU_UNHEALTHY not in taints:
        return None
    meta = node["metadata"]
    conditions = {item["type"]: item for item in node.get("status", {}).get("conditions") or ()}
    condition = conditions.get(labels.GPU_UNHEALTHY_CONDITION, {})
    return UnhealthyNode(
        name=meta["name"],
        pool=meta["labels"].get(labels.POOL, ""),
        kind=taints[labels.GPU_UNHEALTHY],
        since=condition.get("lastTransitionTime", ""),
        why=condition.get("message", ""),
        repaired=(meta.get("annotations") or {}).get(labels.GPU_REPAIRED),
    )


def write_tickets(tickets: Iterable[Ticket], folder: Path) -> list[Path]:
    """Write a Markdown file for each ticket; existing files are overwritten.

    Raises Failure, and writes nothing, if a ticket's node has a name that no node can have: it is part of the
    file's path, and whoever may write ConfigMaps chooses it.
    """
    tickets = list(tickets)
    for ticket in tickets:
        if not _NODE.fullmatch(ticket.node) or len(ticket.node) > _LONGEST_NAME:
            fact = f"{ticket.node[:_LONGEST_NAME]!r} is not the name of a node"
            raise Failure("ticket", fact, f"look at its ConfigMap in {HEALTH}, and delete it")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for ticket in tickets:
        file = folder / f"{ticket.node}.md"
        file.write_text(ticket.files["ticket.md"], encoding="utf-8")
        written.append(file)
    return written
