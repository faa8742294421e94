"""When a node with our taint may return, and what it waits for until then.

A fault that is no longer reported is not repaired: a GPU that has fallen off the bus has no series, either. A
node returns only when it was repaired (a person has said so, or it was rebooted where a reset was needed), no
fault of it was reported for the settling time while all its GPUs were measured, and it is Ready and offers
what its pool promises. Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

from collections.abc import Mapping

from infra.incluster.cases import Fault, Node, Settings, State, Step


def steps(
    settings: Settings,
    after: State,
    known: Mapping[str, Node],
    active: Mapping[str, list[Fault]],
    quiet: Mapping[str, float],
    now: float,
) -> list[Step]:
    """For nodes with our taint: lift it, report what they wait for, or restore a removed taint."""
    if not settings.acts:
        return []
    found = []
    for name, node in sorted(known.items()):
        record = node.record or {}
        if not record and node.taint is None:
            continue
        kind = str(record.get("class", node.taint))
        if record and node.taint != record.get("class"):
            found.append(
                Step("restore", name, kind, (), "the taint was removed by another program or person")
            )
        if not repaired(node):
            continue
        why = _waits(settings, node, active.get(name, []), quiet.get(name), now)
        if why:
            found.append(Step("wait", name, kind, (), why))
            continue
        for one in after.actions:
            if one["uid"] == node.uid:
                one |= {"over": True} if one["done"] else {"over": True, "done": True, "at": now}
        said = f"repaired: {node.repaired}" if node.repaired is not None else "the node was rebooted"
        found = [step for step in found if step.node != name]
        found.append(Step("lift", name, kind, (), said))
    return found


def repaired(node: Node) -> bool:
    """Whether a person has said so, or the node was rebooted, which includes a reset."""
    if node.repaired is not None:
        return True
    record = node.record or {}
    before = record.get("boot")
    return record.get("class") == "reset" and bool(before) and bool(node.boot) and node.boot != before


def _waits(settings: Settings, node: Node, active: list[Fault], since: float | None, now: float) -> str:
    """Why a repaired node stays out, or empty. A missing series proves nothing: a lost GPU has none."""
    if active:
        return f"fault still active: {active[0].words}"
    if not node.measured:
        return "not all of its GPUs are measured, so a fault could be missed"
    if since is None or now - since < settings.settle_s:
        return f"no fault, but for less than {settings.settle_s:g} s"
    return node.missing
