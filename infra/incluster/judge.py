"""Which node is acted on and how, and when to stop; nothing here asks a server, and the same input gives the
same answer.

What it decides from: the faults that are active now, the nodes as they are, what was done before (``State``,
which is kept in the cluster), and since when each node has been without a fault.

A fault is acted on once: it is ``spent`` until it has been gone for the time to settle, whether or not the
loop was started anew in between. What came and went while nobody looked is not made up for. It lies beside
the health loop, in the same ConfigMap. Standard library alone, Python 3.11 or newer.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))  # isolated, the interpreter does not look there by itself
if TYPE_CHECKING:
    from infra.incluster import healing
    from infra.incluster.cases import RANK, Fault, Node, Settings, State, Step
else:
    import healing
    from cases import RANK, Fault, Node, Settings, State, Step


def listen(
    quiet: Mapping[str, float],
    names: Iterable[str],
    faults: Iterable[Fault],
    now: float,
    unseen: Collection[str] = (),
) -> dict[str, float]:
    """Since when each node of these names has been without a fault that counts, as far as was listened.

    Call it with an empty mapping after any time without an answer: silence is no quiet. Nor is it that of
    ``unseen``, nodes that are there and of whose GPUs one at least is not measured.
    """
    loud = {fault.node for fault in faults if fault.kind in RANK}
    over = {*loud, *unseen}
    return {name: now if name in over else quiet.get(name, now) for name in {*names, *loud}}


def names(nodes: Iterable[Node], state: State) -> set[str]:
    """Of the nodes to listen to: those there are, and those of which something is remembered."""
    return {node.name for node in nodes} | {id.partition("|")[0] for id in state.spent}


def limit(settings: Settings, nodes: Iterable[Node], state: State) -> int:
    """How many actions the window bears: a share of the nodes, one at least, and no more than the most."""
    found = max(1, int(settings.budget * _counted(nodes, state) + 1e-9))  # 0.29 * 100 is not quite 29
    return found if settings.most is None else min(found, settings.most)


def _counted(nodes: Iterable[Node], state: State) -> int:
    """Nodes that the budget is a share of.

    Those that were replaced count until the window is over, and those that came instead do not: else each
    action would change what the next one is measured by.
    """
    there = {node.uid for node in nodes} | {one["uid"] for one in state.actions}
    before = [int(one["of"]) for one in state.actions[:1]]
    return min([len(there), *before])


def decide(
    settings: Settings,
    nodes: Iterable[Node],
    faults: Iterable[Fault],
    state: State,
    quiet: Mapping[str, float],
    now: float,
) -> tuple[list[Step], State]:
    """What to do now, and what is remembered of it; write the latter down before the former is done."""
    known = {node.name: node for node in nodes}
    after = _kept(settings, state, known, quiet, now)
    active: dict[str, list[Fault]] = {}
    for fault in sorted(faults):
        if fault.kind in RANK and fault.node in known:
            active.setdefault(fault.node, []).append(fault)
    steps = [
        *_again(settings, after, known, active),
        *healing.steps(settings, after, known, active, quiet, now),
    ]
    fresh = {name: _fresh(settings, after, known[name], found, now) for name, found in active.items()}
    due = [(name, found) for name, found in fresh.items() if found]
    for name, found in sorted(due, key=lambda one: (-_rank(one[1]), one[0])):
        # What the node says of them is written anew with the next action, which is about others.
        noted = {fault.id for fault in active[name]} - {fault.id for fault in found}
        after.spent |= dict.fromkeys(noted, known[name].uid)
        steps += _act(settings, after, known, name, found, now)
    return steps, after


def reset(state: State) -> State:
    """The breaker closed by a person: counting begins anew; what was begun is still brought to an end."""
    begun = [one for one in state.actions if not one["done"]]
    return replace(state, actions=begun, breaker=None)


def finished(state: State, at: float, node: str, now: float) -> State:
    """The action that was decided then has been carried out; it counts from now on."""
    done = {"at": now, "done": True}
    own = [{**one, **done} if (one["at"], one["node"]) == (at, node) else one for one in state.actions]
    return replace(state, actions=own)


def _kept(
    settings: Settings, state: State, known: Mapping[str, Node], quiet: Mapping[str, float], now: float
) -> State:
    """The state without what no longer matters; what was only observed is nothing that was done.

    What was begun matters until it is done, or its reason is gone: it may fail for longer than a window.
    """
    if state.observed and settings.acts:
        state = State()
    begin = now - settings.window_s
    actions = [dict(one) for one in state.actions if one["at"] > begin or not one["done"]]
    spent = {}
    for id, uid in state.spent.items():
        since = quiet.get(id.partition("|")[0], now)
        if now - since < settings.settle_s:
            spent[id] = uid
    breaker = dict(state.breaker) if state.breaker else None
    return State(not settings.acts, actions, spent, breaker)


def _again(
    settings: Settings, after: State, known: Mapping[str, Node], active: Mapping[str, list[Fault]]
) -> list[Step]:
    """What was begun and not ended, where it still has a reason; it has been counted."""
    steps = []
    for one in after.actions:
        if one["done"]:
            continue
        node = known.get(one["node"])
        found = [fault for fault in active.get(one["node"], ()) if fault.id in one["faults"]]
        if node is None or node.uid != one["uid"] or not found:
            one["done"] = one["over"] = True  # the reason is gone: too late
            continue
        again = (one["action"], node.name, one["class"], tuple(found), "begun before", one["at"])
        steps.append(Step(*again))
    return steps


def _fresh(settings: Settings, after: State, node: Node, found: list[Fault], now: float) -> list[Fault]:
    """Faults that nothing was done about; on a new node of an old name, those of the old one fade first."""
    noted = set((node.record or {}).get("faults", ()))
    old_enough = now - node.created >= settings.settle_s
    return [
        fault
        for fault in found
        if fault.id not in noted
        and (fault.id not in after.spent or (after.spent[fault.id] != node.uid and old_enough))
    ]


def _act(
    settings: Settings, after: State, known: Mapping[str, Node], name: str, found: list[Fault], now: float
) -> list[Step]:
    node, rank = known[name], _rank(found)
    kind = next(kind for kind, of in RANK.items() if of == rank)
    if _done(after, node) >= rank:
        after.spent |= {fault.id: node.uid for fault in found}
        return [Step("note", name, kind, tuple(found), "the node is out of use already")]
    action = _action(settings, node, kind)
    bears = limit(settings, known.values(), after)
    if after.breaker is None and len(after.actions) >= bears:
        had = len(after.actions)
        why = f"{had} action{'' if had == 1 else 's'} in {settings.window_s:g} s, and the budget is {bears}"
        after.breaker = {"since": now, "why": why, "withheld": []}
    if after.breaker is not None:
        if name in after.breaker["withheld"]:
            return []
        after.breaker["withheld"] = [*after.breaker["withheld"], name]
        return [Step("withhold", name, kind, tuple(found), f"breaker open: {after.breaker['why']}")]
    one = {"at": now, "node": name, "uid": node.uid, "class": kind, "action": action, "done": False}
    ids = [fault.id for fault in found]
    after.actions.append({**one, "over": False, "of": _counted(known.values(), after), "faults": ids})
    after.spent |= dict.fromkeys(ids, node.uid)
    return [Step(action, name, kind, tuple(found), found[0].words, now)]


def _action(settings: Settings, node: Node, kind: str) -> str:
    """Only a broken GPU costs a node: for a reset, an autoscaler's gets empty and goes by itself."""
    if settings.mode != "replace":
        return settings.mode
    return "replace" if kind == "replace" and node.claim and not node.pinned else "ticket"


def _done(after: State, node: Node) -> int:
    """Rank of what was done to the node, 0 for nothing."""
    ranks = [RANK.get(str((node.record or {}).get("class")), 0)]
    ranks += [RANK[one["class"]] for one in after.actions if one["uid"] == node.uid and not one["over"]]
    return max(ranks)


def _rank(found: Iterable[Fault]) -> int:
    return max(RANK[fault.kind] for fault in found)
