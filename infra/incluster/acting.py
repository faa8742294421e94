"""Carries out the decided steps on a node; every step is idempotent.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import json
from typing import Any

from infra.incluster import proof, reporting
from infra.incluster.cases import Node, Step
from infra.incluster.cluster import LONGEST, Cluster, at

TAINT = "gpuform.io/gpu-unhealthy"
CONDITION = "GpuUnhealthy"
RECORD = "gpuform.io/gpu-health"
REPAIRED = "gpuform.io/gpu-repaired"
TICKET = "gpuform.io/ticket"
NODE_POOL = "karpenter.sh/nodepool"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
PINNED = ("karpenter.sh/do-not-disrupt", "cluster-autoscaler.kubernetes.io/scale-down-disabled")
MOST_FAULTS = 64  # recorded on a node

Json = dict[str, Any]


def read(node: Json, pool: Json, since: float, measured: bool = True) -> Node:
    """The node as a judged value; ``pool`` has what it must offer, unless the node's annotation has it."""
    meta, status = node["metadata"], node.get("status", {})
    notes, labels = meta.get("annotations") or {}, meta.get("labels") or {}
    return Node(
        name=meta["name"],
        uid=meta["uid"],
        since=since,
        boot=str(status.get("nodeInfo", {}).get("bootID", "")),
        missing=_missing(node, pool),
        record=_record(notes.get(RECORD)),
        taint=_taint(node),
        repaired=notes.get(REPAIRED),
        claim=NODE_POOL in labels,
        pinned=any(notes.get(key) == "true" for key in PINNED),
        measured=measured,
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
            # By the machine: a node's name is used again, its provider id is not.
            machine = node["spec"].get("providerID")
            for claim in self._cluster.pages(CLAIMS, {}) if machine else ():
                if claim.get("status", {}).get("providerID") == machine:
                    name = f"NodeClaim {claim['metadata']['name']}"
                    if (
                        "deletionTimestamp" in claim["metadata"]
                    ):  # requested before; Karpenter drains the node
                        return f"{name} is being deleted"
                    self._cluster.delete(CLAIMS, claim)
                    return f"{name} deleted"
        if step.action in ("ticket", "replace"):
            pool = node["metadata"]["labels"].get(proof.POOL, "")
            return self._ticket(step, pool, now)
        return ""

    def _cordon(self, node: Json, step: Step, now: float) -> None:
        record = {
            "action": step.action,
            "at": at(now),
            "boot": node["status"].get("nodeInfo", {}).get("bootID", ""),
            "class": step.kind,
            "faults": [fault.id for fault in step.faults][:MOST_FAULTS],
        }
        notes = {RECORD: json.dumps(record, sort_keys=True), REPAIRED: None}  # an earlier repair is outdated
        if not _cordoned(node, record):
            self._cluster.change(node, notes, _taints(node, step.kind))
        message = "; ".join(fault.words for fault in step.faults)[:LONGEST]
        reason = "GpuNeedsReset" if step.kind == "reset" else "GpuNeedsReplacement"
        self._condition(node, "True", reason, message, now)

    def _lift(self, node: Json, step: Step, now: float) -> str:
        """Remove the taint last: while it is there, a failed lift is retried."""
        node = self._condition(node, "False", "GpuRepaired", step.why, now)  # it has a new resourceVersion
        closed = self._close(step.node, step.why, now)
        self._cluster.change(node, {RECORD: None, REPAIRED: None}, _taints(node, None))
        return closed

    def _condition(self, node: Json, status: str, reason: str, message: str, now: float) -> Json:
        """Set our condition, and return the changed node; the other conditions stay.

        Keep lastTransitionTime unless the status changes: other programs count from it.
        """
        conditions = node["status"].get("conditions") or ()
        before: Json = next((one for one in conditions if one["type"] == CONDITION), {})
        since = before.get("lastTransitionTime") if before.get("status") == status else None
        said = {"type": CONDITION, "status": status, "reason": reason, "message": message}
        said |= {"lastHeartbeatTime": at(now), "lastTransitionTime": since or at(now)}
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        patch = {"status": {"conditions": [said]}}
        return self._cluster.call("PATCH", path, {}, patch, "strategic-merge-patch+json")

    def _ticket(self, step: Step, pool: str, now: float) -> str:
        """Write the node's ticket for a person; returns its name for the log."""
        ticket = self._cluster.config_map(reporting.ticket_name(step.node))
        ticket["metadata"]["labels"] = {TICKET: "open"}
        facts = [fault.words for fault in step.faults]
        self._cluster.write(ticket, reporting.ticket(step.node, pool, step.kind, facts, now))
        return f"ticket {ticket['metadata']['name']}"

    def _close(self, node: str, why: str, now: float) -> str:
        ticket = self._cluster.config_map(reporting.ticket_name(node))
        if ticket["metadata"].get("labels", {}).get(TICKET) != "open":
            return ""
        ticket["metadata"]["labels"][TICKET] = "closed"
        self._cluster.write(ticket, {**ticket["data"], "closed": f"{at(now)} {why}\n"})
        return f"ticket {ticket['metadata']['name']} closed"


def _cordoned(node: Json, record: Json) -> bool:
    """Whether the node was cordoned for these faults: its boot id, and a repair since then, stay noted."""
    before = _record((node["metadata"].get("annotations") or {}).get(RECORD)) or {}
    same = all(before.get(key) == record[key] for key in ("class", "faults"))
    return same and _taint(node) == record["class"]


def _taint(node: Json) -> str | None:
    """The value of our taint; None without it."""
    found = (one for one in node["spec"].get("taints") or () if one["key"] == TAINT)
    return next((one.get("value", "") for one in found), None)


def _taints(node: Json, kind: str | None) -> list[Json]:
    """The node's taints with ours set to ``kind``, or removed for None."""
    others = [one for one in node["spec"].get("taints") or () if one["key"] != TAINT]
    return others if kind is None else [*others, {"key": TAINT, "value": kind, "effect": "NoSchedule"}]
