"""Carries out the decided steps on a node; every step is idempotent.

Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

import json
from typing import Any

from infra.incluster import proof, reporting
from infra.incluster.cluster import MAX_MESSAGE, Cluster, format_time
from infra.incluster.model import Node, Step

TAINT = "gpuform.io/gpu-unhealthy"
CONDITION = "GpuUnhealthy"
RECORD = "gpuform.io/gpu-health"
REPAIRED = "gpuform.io/gpu-repaired"
TICKET = "gpuform.io/ticket"
MAX_FAULTS = 64  # recorded on a node

Json = dict[str, Any]


def read_node(node: Json, pool: Json, since: float, measured: bool = True) -> Node:
    """The node as a judged value; ``pool`` has what it must offer, unless the node's annotation has it."""
    meta, status = node["metadata"], node.get("status", {})
    annotations = meta.get("annotations") or {}
    return Node(
        name=meta["name"],
        uid=meta["uid"],
        first_seen=since,
        boot_id=str(status.get("nodeInfo", {}).get("bootID", "")),
        missing=_missing_resources(node, pool),
        record=_parse_record(annotations.get(RECORD)),
        taint=_taint_value(node),
        repaired=annotations.get(REPAIRED),
        measured=measured,
    )


def _parse_record(text: str | None) -> Json | None:
    """The record in the annotation; None if it is unreadable: then only a person can clear the taint."""
    try:
        record = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(record, dict) or "class" not in record:
        return None
    faults = record.get("faults", [])
    return record if isinstance(faults, list) and all(isinstance(fault, str) for fault in faults) else None


def _missing_resources(node: Json, pool: Json) -> str:
    status = node.get("status", {})
    conditions = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    if conditions.get("Ready") != "True":
        return "the node is not Ready"
    required = proof.promised_resources(node, pool)
    if not required:
        return "neither its pool nor an annotation says what it must offer"
    allocatable = status.get("allocatable") or {}
    for name, count in sorted(required.items()):
        # Devices by claim are not in allocatable; that all GPUs are measured must suffice.
        if name.startswith(proof.RESOURCE) and proof.amount(allocatable.get(name, "0")) < count:
            return f"it offers {allocatable.get(name, '0')} of {count} {name}"
    return ""


class NodeActions:
    """Changes nodes; raises what ``Cluster`` raises."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def execute(self, step: Step, node: Json, now: float) -> str:
        """Carry out one step; returns details for the log, or an empty string."""
        if step.action == "lift":
            return self._lift(node, step, now)
        if step.action == "restore":
            self._cluster.change_node(node, {}, _with_taint(node, step.kind))
            return ""
        pool = node["metadata"]["labels"].get(proof.POOL, "")
        if step.at:
            self._cordon(node, step, now)
            return self._open_ticket(step, pool, now) if step.action == "ticket" else ""
        # Cordoned earlier, so not in the state: the ticket is written again until it is noted.
        ticket = self._open_ticket(step, pool, now)
        record = _parse_record(node["metadata"]["annotations"][RECORD]) or {}
        text = json.dumps({**record, "action": step.action}, sort_keys=True)
        self._cluster.change_node(node, {RECORD: text}, _with_taint(node, step.kind))
        return ticket

    def _cordon(self, node: Json, step: Step, now: float) -> None:
        record = {
            "action": step.action,
            "at": format_time(now),
            "boot": node["status"].get("nodeInfo", {}).get("bootID", ""),
            "class": step.kind,
            "faults": [fault.id for fault in step.faults][:MAX_FAULTS],
        }
        # An earlier repair is outdated.
        annotations = {RECORD: json.dumps(record, sort_keys=True), REPAIRED: None}
        if not _is_recorded(node, record):
            self._cluster.change_node(node, annotations, _with_taint(node, step.kind))
        message = "; ".join(fault.text for fault in step.faults)[:MAX_MESSAGE]
        reason = "GpuNeedsReset" if step.kind == "reset" else "GpuNeedsReplacement"
        self._set_condition(node, "True", reason, message, now)

    def _lift(self, node: Json, step: Step, now: float) -> str:
        """Remove the taint last: while it is there, a failed lift is retried."""
        node = self._set_condition(node, "False", "GpuRepaired", step.reason, now)  # a new resourceVersion
        ticket = self._close_ticket(step.node, step.reason, now)
        self._cluster.change_node(node, {RECORD: None, REPAIRED: None}, _with_taint(node, None))
        return ticket

    def _set_condition(self, node: Json, status: str, reason: str, message: str, now: float) -> Json:
        """Set our condition, and return the changed node; the other conditions stay.

        Keep lastTransitionTime unless the status changes: other programs count from it.
        """
        conditions = node["status"].get("conditions") or ()
        old: Json = next((item for item in conditions if item["type"] == CONDITION), {})
        changed = old.get("lastTransitionTime") if old.get("status") == status else None
        condition = {"type": CONDITION, "status": status, "reason": reason, "message": message}
        time = format_time(now)
        condition |= {"lastHeartbeatTime": time, "lastTransitionTime": changed or time}
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        patch = {"status": {"conditions": [condition]}}
        return self._cluster.request("PATCH", path, {}, patch, "strategic-merge-patch+json")

    def _open_ticket(self, step: Step, pool: str, now: float) -> str:
        """Write the node's ticket for a person; returns its name for the log."""
        ticket = self._cluster.config_map(reporting.ticket_name(step.node))
        ticket["metadata"]["labels"] = {TICKET: "open"}
        facts = [fault.text for fault in step.faults]
        self._cluster.write(ticket, reporting.ticket(step.node, pool, step.kind, facts, now))
        return f"ticket {ticket['metadata']['name']}"

    def _close_ticket(self, node: str, reason: str, now: float) -> str:
        ticket = self._cluster.config_map(reporting.ticket_name(node))
        if ticket["metadata"].get("labels", {}).get(TICKET) != "open":
            return ""
        ticket["metadata"]["labels"][TICKET] = "closed"
        self._cluster.write(ticket, {**ticket["data"], "closed": f"{format_time(now)} {reason}\n"})
        return f"ticket {ticket['metadata']['name']} closed"


def _is_recorded(node: Json, record: Json) -> bool:
    """Whether the node was cordoned for these faults: its boot id, and a repair since then, stay noted."""
    old = _parse_record((node["metadata"].get("annotations") or {}).get(RECORD)) or {}
    same = all(old.get(key) == record[key] for key in ("class", "faults"))
    return same and _taint_value(node) == record["class"]


def _taint_value(node: Json) -> str | None:
    """The value of our taint; None without it."""
    own = (taint for taint in node["spec"].get("taints") or () if taint["key"] == TAINT)
    return next((taint.get("value", "") for taint in own), None)


def _with_taint(node: Json, kind: str | None) -> list[Json]:
    """The node's taints with ours set to ``kind``, or removed for None."""
    others = [taint for taint in node["spec"].get("taints") or () if taint["key"] != TAINT]
    return others if kind is None else [*others, {"key": TAINT, "value": kind, "effect": "NoSchedule"}]
