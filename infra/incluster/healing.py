"""When a node with our taint is let back in, and what it waits for until then.

A fault that is no longer seen is not repaired: a GPU that has fallen off the bus has no series, either. A
node comes back only when somebody has done something (a person has said so, or it was booted anew where a
reset was called for), no fault of it has been seen for the time to settle while all its GPUs were measured,
and it is Ready and offers what its pool promises. It lies beside the health loop, in the same ConfigMap.
Standard library alone, Python 3.11 or newer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))  # isolated, the interpreter does not look there by itself
if TYPE_CHECKING:
    from infra.incluster.cases import Fault, Node, Settings, State, Step
else:
    from cases import Fault, Node, Settings, State, Step


def steps(
    settings: Settings,
    after: State,
    known: Mapping[str, Node],
    active: Mapping[str, list[Fault]],
    quiet: Mapping[str, float],
    now: float,
) -> list[Step]:
    """Nodes with our taint: let back in, said what they wait for, or given the taint that somebody took."""
    if not settings.acts:
        return []
    found = []
    for name, node in sorted(known.items()):
        record = node.record or {}
        if not record and node.taint is None:
            continue
        kind = str(record.get("class", node.taint))
        if record and node.taint != record.get("class"):
            found.append(Step("restore", name, kind, (), "somebody else took the taint away"))
        if not _repaired(node):
            continue
        why = _waits(settings, node, active.get(name, []), quiet.get(name), now)
        if why:
            found.append(Step("wait", name, kind, (), why))
            continue
        for one in after.actions:
            if one["uid"] == node.uid:
                one["over"] = True
        said = f"repaired: {node.repaired}" if node.repaired is not None else "it was booted anew"
        found = [step for step in found if step.node != name]
        found.append(Step("lift", name, kind, (), said))
    return found


def _repaired(node: Node) -> bool:
    """A person has said so; or it was booted anew, which is what a reset comes to."""
    if node.repaired is not None:
        return True
    record = node.record or {}
    before = record.get("boot")
    return record.get("class") == "reset" and bool(before) and bool(node.boot) and node.boot != before


def _waits(settings: Settings, node: Node, active: list[Fault], since: float | None, now: float) -> str:
    """Why a repaired node stays out. A series that has gone proves nothing: a lost GPU has none."""
    if active:
        return f"still there: {active[0].words}"
    if not node.measured:
        return "not all of its GPUs are measured, so that nobody sees a fault"
    if since is None or now - since < settings.settle_s:
        return f"no fault, but not for {settings.settle_s:g} s yet"
    return node.missing
