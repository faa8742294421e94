"""Decides which node is acted on and how, and when to stop; deterministic, and asks no server.

Inputs are the active faults, the nodes, past actions (``State``, stored in the cluster), and since when each
node has been without a fault.

A fault is acted on once: it is ``spent`` until it has been gone for the settling time, even across restarts
of the loop. Faults that came and went while the loop was down are ignored. An action is repeated until it is
done, also after its fault has ended, which proves no repair; but a node is removed only while its fault is
reported. Part of the health loop's ConfigMap. Standard library only, Python 3.11 or newer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from infra.incluster import healing
from infra.incluster.cases import RANK, Fault, Node, Settings, State, Step

STRENGTH = ("observe", "cordon", "ticket", "replace")
"""Actions, weakest first."""


def listen(
    quiet: Mapping[str, float],
    names: Iterable[str],
    faults: Iterable[Fault],
    now: float,
    unseen: Collection[str] = (),
) -> dict[str, float]:
    """Since when each node of these names has been observed without a fault that counts.

    Pass an empty ``quiet`` after any time without an answer: no answer does not mean no fault. The time also
    restarts for ``unseen``, existing nodes with at least one GPU that is not measured.
    """
    loud = {fault.node for fault in faults if fault.kind in RANK}
    over = {*loud, *unseen}
    return {name: now if name in over else quiet.get(name, now) for name in {*names, *loud}}


def names(nodes: Iterable[Node], state: State) -> set[str]:
    """Names of the nodes to observe: existing ones, and those with spent faults."""
    return {node.name for node in nodes} | {id.partition("|")[0] for id in state.spent}


def limit(settings: Settings, nodes: Iterable[Node], state: State) -> int:
    """Actions allowed per window: the budget's share of the nodes, at least 1, at most ``settings.most``."""
    found = max(1, int(settings.budget * _counted(nodes, state) + 1e-9))  # 0.29 * 100 is not quite 29
    return found if settings.most is None else min(found, settings.most)


def _counted(nodes: Iterable[Node], state: State) -> int:
    """Number of nodes that the budget is a share of.

    Replaced nodes count until the window is over, and their successors do not: otherwise each action would
    change the limit for the next one.
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
    """The steps to do now, and the new state; store the state before carrying out the steps."""
    known = {node.name: node for node in nodes}
    after = _kept(settings, state, known, quiet, now)
    active: dict[str, list[Fault]] = {}
    for fault in sorted(faults):
        if fault.kind in RANK and fault.node in known:
            active.setdefault(fault.node, []).append(fault)
    again = _again(settings, after, known, active, now)
    rest = {name: node for name, node in known.items() if name not in {step.node for step in again}}
    healed = healing.steps(settings, after, rest, active, quiet, now)
    acts: list[Step] = []
    fresh = {name: _fresh(settings, after, known[name], found, now) for name, found in active.items()}
    due = [(name, found) for name, found in fresh.items() if found]
    for name, found in sorted(due, key=lambda one: (-_rank(one[1]), one[0])):
        # The next action overwrites the node's record with other faults, so these are kept as spent.
        noted = {fault.id for fault in active[name]} - {fault.id for fault in found}
        after.spent |= dict.fromkeys(noted, known[name].uid)
        acts += _act(settings, after, known, name, found, now)
    # One change of a node per round: after it, the node is no longer the one that was read.
    anew = {step.node for step in acts if step.action in STRENGTH}
    return [*(step for step in (*again, *healed) if step.node not in anew), *acts], after


def reset(state: State) -> State:
    """The state after a person closed the breaker: counting restarts; unfinished actions are kept."""
    begun = [one for one in state.actions if not one["done"]]
    return replace(state, actions=begun, breaker=None)


def finished(state: State, at: float, node: str, now: float) -> State:
    """The state with the action of ``at`` and ``node`` done; it counts from ``now``."""
    done = {"at": now, "done": True}
    own = [{**one, **done} if (one["at"], one["node"]) == (at, node) else one for one in state.actions]
    return replace(state, actions=own)


def _kept(
    settings: Settings, state: State, known: Mapping[str, Node], quiet: Mapping[str, float], now: float
) -> State:
    """The state without outdated entries, and without observed actions once the loop acts.

    Unfinished actions stay until they are done: they may fail for longer than a window.
    """
    if state.observed and settings.acts:
        state = _carried_out(state)
    begin = now - settings.window_s
    actions = [dict(one) for one in state.actions if one["at"] > begin or not one["done"]]
    spent = {}
    for id, uid in state.spent.items():
        since = quiet.get(id.partition("|")[0], now)
        if now - since < settings.settle_s:
            spent[id] = uid
    breaker = dict(state.breaker) if state.breaker else None
    return State(not settings.acts, actions, spent, breaker)


def _carried_out(state: State) -> State:
    """The state without what was only observed."""
    own = [one for one in state.actions if one["action"] != "observe"]
    spent = {id: one["uid"] for one in own for id in one["faults"]}
    breaker = state.breaker if state.breaker and not state.breaker.get("observed", True) else None
    return State(False, own, spent, breaker)


def _again(
    settings: Settings, after: State, known: Mapping[str, Node], active: Mapping[str, list[Fault]], now: float
) -> list[Step]:
    """Steps for unfinished actions, which are counted already; none while a repaired node waits."""
    steps = []
    for one in after.actions:
        if one["done"] or (not settings.acts and one["action"] != "observe"):
            continue
        node = known.get(one["node"])
        found = tuple(fault for fault in active.get(one["node"], ()) if fault.id in one["faults"])
        if (
            node is None
            or node.uid != one["uid"]
            or not (found or _cordoned(one, node) or _same_boot(one, node))
        ):
            one |= {"done": True, "over": True, "at": now}
            continue
        if _cordoned(one, node) and healing.repaired(node):
            continue
        kind, why = one["class"], "retry of an unfinished action"
        action = min(one["action"], _action(settings, node, kind, bool(found)), key=STRENGTH.index)
        if _too_new(settings, node, action, now):
            if not _cordoned(one, node):
                steps.append(Step("cordon", node.name, kind, found, why))
            continue
        faults = found or tuple(map(Fault.of, one["faults"]))
        steps.append(Step(action, node.name, kind, faults, why, one["at"]))
    return steps


def _cordoned(one: Mapping[str, Any], node: Node) -> bool:
    return bool((node.record or {}).get("class", node.taint) == one["class"])


def _same_boot(one: Mapping[str, Any], node: Node) -> bool:
    """Whether the node has not been rebooted since the action; true of actions of earlier versions."""
    return bool(one.get("boot", node.boot) == node.boot)


def _too_new(settings: Settings, node: Node, action: str, now: float) -> bool:
    """Whether the fault may be one of an earlier node of that name: such a node is not removed."""
    return action == "replace" and now - node.since < settings.settle_s


def _fresh(settings: Settings, after: State, node: Node, found: list[Fault], now: float) -> list[Fault]:
    """Faults without an action; on a new node of an old name, those of the old node must fade first."""
    noted = set((node.record or {}).get("faults", ()))
    old_enough = now - node.since >= settings.settle_s
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
        return [Step("note", name, kind, tuple(found), "the node is already tainted")]
    action = _action(settings, node, kind, seen=True)
    bears = limit(settings, known.values(), after)
    if after.breaker is None and len(after.actions) >= bears:
        had = len(after.actions)
        why = f"{had} action{'' if had == 1 else 's'} in {settings.window_s:g} s, and the budget is {bears}"
        after.breaker = {"since": now, "why": why, "withheld": [], "observed": not settings.acts}
    if after.breaker is not None:
        if name in after.breaker["withheld"]:
            return []
        after.breaker["withheld"] = [*after.breaker["withheld"], name]
        return [Step("withhold", name, kind, tuple(found), f"breaker open: {after.breaker['why']}")]
    for one in after.actions:
        if one["uid"] == node.uid and not one["done"]:
            one |= {"done": True, "over": True, "at": now}  # this one does more
    one = {"at": now, "node": name, "uid": node.uid, "boot": node.boot, "class": kind, "action": action}
    ids = [fault.id for fault in found]
    of = _counted(known.values(), after)
    after.actions.append({**one, "done": False, "over": False, "of": of, "faults": ids})
    after.spent |= dict.fromkeys(ids, node.uid)
    if _too_new(settings, node, action, now):
        return [Step("cordon", name, kind, tuple(found), found[0].words)]
    return [Step(action, name, kind, tuple(found), found[0].words, now)]


def _action(settings: Settings, node: Node, kind: str, seen: bool) -> str:
    """Only class replace deletes a node: one that needs a reset empties, and its autoscaler removes it.

    ``seen``: whether its fault is reported now. It may be older than a repair that a person has noted.
    """
    if settings.mode != "replace":
        return settings.mode
    removable = node.claim and not node.pinned and node.repaired is None
    return "replace" if kind == "replace" and seen and removable else "ticket"


def _done(after: State, node: Node) -> int:
    """Rank of what was done to the node, 0 for nothing."""
    ranks = [RANK.get(str((node.record or {}).get("class")), 0)]
    ranks += [RANK[one["class"]] for one in after.actions if one["uid"] == node.uid and not one["over"]]
    return max(ranks)


def _rank(found: Iterable[Fault]) -> int:
    return max(RANK[fault.kind] for fault in found)
