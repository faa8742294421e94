"""Carries out the decided steps on a node; every step is idempotent.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))  # python3 -I does not search this folder
if TYPE_CHECKING:
    from infra.incluster import proof, told
    from infra.incluster.cases import Node, Step
    from infra.incluster.cluster import Cluster
else:
    import proof
    import told
    from cases import Node

TAINT = "gpuform.io/gpu-unhealthy"
CONDITION = "GpuUnhealthy"
RECORD = "gpuform.io/gpu-health"
REPAIRED = "gpuform.io/gpu-repaired"
TICKET = "gpuform.io/ticket"
NODE_POOL = "karpenter.sh/nodepool"
PINNED = ("karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled")
MOST_FAULTS = 64  # recorded on a node

Json = dict[str, Any]


def read(node: Json, pool: Json, since: float) -> Node:
    """The node as a judged value; ``pool`` has what it must offer, unless the node's annotation has it."""
    meta, status = node["metadata"], node.get("status", {})
    notes, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    taints = {one["key"]: one.get("value", "") for one in node["spec"].get("taints") or ()}
    return Node(
        name=meta["name"],
        uid=meta["uid"],
        since=since,
        boot=str(status.get("nodeInfo", {}).get("bootID", "")),
        missing=_missing(node, pool),
        record=_record(notes.get(RECORD)),
        taint=taints.get(TAINT),
        repaired=notes.get(REPAIRED),
        claim=NODE_POOL in labels,
        pinned=any(notes.get(key) == "true" for key in PINNED),
    )


def _record(text: str | None) -> Json | None:
    """The record in the annotation; None if it is unreadable: then only a person can clear the taint."""
    try:
        found = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(found, dict) or "class" not in found:
        return None
    faults = found.get("faults", [])
    return found if isinstance(faults, list) and all(isinstance(one, str) for one in faults) else None


def _missing(node: Json, pool: Json) -> str:
    status = node.get("status", {})
    conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
    if conditions.get("Ready") != "True":
        return "the node is not Ready"
    promised = proof.promise(node, pool)
    if not promised:
        return "neither its pool nor an annotation says what it must offer"
    there = status.get("allocatable") or {}
    for name, count in sorted(promised.items()):
        # Devices by claim are not in allocatable; that all GPUs are measured must suffice.
        if name.startswith(proof.RESOURCE) and proof.amount(there.get(name, "0")) < count:
            return f"it offers {there.get(name, '0')} of {count} {name}"
    return ""


class Hand:
    """Changes nodes; raises what ``Cluster`` raises."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def do(self, step: Step, node: Json, now: float) -> str:
        """Carry out one step; returns details for the log, or an empty string."""
        if step.action == "lift":
            return self._lift(node, step, now)
        if step.action == "restore":
            self._cluster.change(node, {}, _taints(node, step.kind))
            return ""
        self._cordon(node, step, now)
        if step.action == "replace":
            claim = self._cluster.claim(node)
            if claim is not None:
                if "deletionTimestamp" in claim["metadata"]:  # requested before; Karpenter drains the node
                    return f"NodeClaim {claim['metadata']['name']} is being deleted"
                self._cluster.give_back(claim)
                return f"NodeClaim {claim['metadata']['name']} deleted"
        if step.action in ("ticket", "replace"):
            pool = node["metadata"]["labels"].get(proof.POOL, "")
            return self._ticket(step.node, pool, step.kind, [fault.words for fault in step.faults], now)
        return ""

    def _cordon(self, node: Json, step: Step, now: float) -> None:
        record = {
            "action": step.action,
            "at": told.at(now),
            "boot": node["status"].get("nodeInfo", {}).get("bootID", ""),
            "class": step.kind,
            "faults": [fault.id for fault in step.faults][:MOST_FAULTS],
        }
        notes = {RECORD: json.dumps(record, sort_keys=True), REPAIRED: None}  # an earlier repair is outdated
        if not _cordoned(node, record):
            self._cluster.change(node, notes, _taints(node, step.kind))
        message = "; ".join(fault.words for fault in step.faults)[: told.LONGEST]
        reason = "GpuNeedsReset" if step.kind == "reset" else "GpuNeedsReplacement"
        self._cluster.condition(step.node, _condition(node, "True", reason, message, now))

    def _lift(self, node: Json, step: Step, now: float) -> str:
        """Remove the taint last: while it is there, a failed lift is retried."""
        said = _condition(node, "False", "GpuRepaired", step.why, now)
        node = self._cluster.condition(step.node, said)  # it has a new resourceVersion
        closed = self._close(step.node, step.why, now)
        self._cluster.change(node, {RECORD: None, REPAIRED: None}, _taints(node, None))
        return closed

    def _ticket(self, name: str, pool: str, kind: str, facts: list[str], now: float) -> str:
        """Write the node's ticket for a person; returns its name for the log."""
        ticket = told.ticket_name(name)
        own = {"name": ticket, "namespace": self._cluster.namespace, "labels": {TICKET: "open"}}
        before = self._cluster.config_map(ticket)
        if before is not None:
            own["resourceVersion"] = before["metadata"]["resourceVersion"]
        data = told.ticket(name, pool, kind, facts, now)
        self._cluster.write({"apiVersion": "v1", "kind": "ConfigMap", "metadata": own, "data": data})
        return f"ticket {ticket}"

    def _close(self, node: str, why: str, now: float) -> str:
        found = self._cluster.config_map(told.ticket_name(node))
        if found is None or found["metadata"].get("labels", {}).get(TICKET) != "open":
            return ""
        found["metadata"]["labels"][TICKET] = "closed"
        found["data"] = {**found["data"], "closed": f"{told.at(now)} {why}\n"}
        self._cluster.write(found)
        return f"ticket {found['metadata']['name']} closed"


def _cordoned(node: Json, record: Json) -> bool:
    """Whether the node was cordoned for these faults: its boot id, and a repair since then, stay noted."""
    before = _record((node["metadata"].get("annotations") or {}).get(RECORD)) or {}
    same = all(before.get(key) == record[key] for key in ("class", "faults"))
    taints = {one["key"]: one.get("value") for one in node["spec"].get("taints") or ()}
    return same and taints.get(TAINT) == record["class"]


def _taints(node: Json, kind: str | None) -> list[Json]:
    """The node's taints with ours set to ``kind``, or removed for None."""
    others = [one for one in node["spec"].get("taints") or () if one["key"] != TAINT]
    return others if kind is None else [*others, {"key": TAINT, "value": kind, "effect": "NoSchedule"}]


def _condition(node: Json, status: str, reason: str, message: str, now: float) -> Json:
    """Keep lastTransitionTime unless the status changes: other programs count from it."""
    before: Json = next(
        (one for one in node["status"].get("conditions") or () if one["type"] == CONDITION), {}
    )
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    said = {"type": CONDITION, "status": status, "reason": reason, "message": message}
    return {**said, "lastHeartbeatTime": told.at(now), "lastTransitionTime": since or told.at(now)}
