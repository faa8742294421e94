"""When a node with our taint may return, and what it waits for until then.

A fault that is no longer reported is not repaired: a GPU that has fallen off the bus has no series, either. A
node returns only when it was repaired (a person has said so, or it was rebooted where a reset was needed), no
fault of it was reported for the settling time while all its GPUs were measured, and it is Ready and offers
what its pool promises. Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.incluster.model import Fault, Node, Settings, State, Step


def recovery_steps(
    settings: Settings,
    state: State,
    nodes: Mapping[str, Node],
    active: Mapping[str, list[Fault]],
    quiet_since: Mapping[str, float],
    now: float,
) -> list[Step]:
    """For nodes with our taint: lift it, report what they wait for, or restore a removed taint."""
    if not settings.is_acting:
        return []
    steps = []
    for name, node in sorted(nodes.items()):
        record = node.record or {}
        if not record and node.taint is None:
            continue
        kind = str(record.get("class", node.taint))
        if record and node.taint != record.get("class"):
            steps.append(
                Step("restore", name, kind, (), "the taint was removed by another program or person")
            )
        if not is_repaired(node):
            continue
        reason = _wait_reason(settings, node, active.get(name, []), quiet_since.get(name), now)
        if reason:
            steps.append(Step("wait", name, kind, (), reason))
            continue
        for action in state.actions:
            if action["uid"] == node.uid:
                action |= {"over": True} if action["done"] else {"over": True, "done": True, "at": now}
        cause = f"repaired: {node.repaired}" if node.repaired is not None else "the node was rebooted"
        steps = [step for step in steps if step.node != name]
        steps.append(Step("lift", name, kind, (), cause))
    return steps


def is_repaired(node: Node) -> bool:
    """Whether a person has said so, or the node was rebooted, which includes a reset."""
    if node.repaired is not None:
        return True
    record = node.record or {}
    boot = record.get("boot")
    return record.get("class") == "reset" and bool(boot) and bool(node.boot_id) and node.boot_id != boot


def _wait_reason(
    settings: Settings, node: Node, active: list[Fault], quiet_since: float | None, now: float
) -> str:
    """Why a repaired node stays out, or empty. A missing series proves nothing: a lost GPU has none."""
    if active:
        return f"fault still active: {active[0].text}"
    if not node.measured:
        return "not all of its GPUs are measured, so a fault could be missed"
    if quiet_since is None or now - quiet_since < settings.settle_s:
        return f"no fault, but for less than {settings.settle_s:g} s"
    return node.missing
