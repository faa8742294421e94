"""What to do about a fault of a GPU, and when a node with our taint may return.

A fault that is no longer reported is not repaired: a GPU that has fallen off the bus has no series, either. A
node returns only when it was repaired (a person has said so, or it was rebooted where a reset was needed), no
fault of it was reported for the settling time while all its GPUs were measured, and it is Ready and offers
what its pool promises.

A fault is acted on once: it is ``spent`` until it has been gone for the settling time, even across restarts
of the loop. Faults that came and went while the loop was down are ignored. An action is repeated until it is
done, also after its fault has ended.

Inputs are the active faults, the nodes, past actions (``State``, stored in the cluster), and since when each
node has been without a fault. Part of the health loop's ConfigMap. Standard library only, Python 3.11 or
newer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from infra.incluster.model import RANK, Fault, Node, Settings, State, Step


def recovery_steps(
    settings: Settings,
    state: State,
    nodes: Mapping[str, Node],
    active: Mapping[str, list[Fault]],
    quiet_since: Mapping[str, float],
    now: float,
) -> list[Step]:
    """For nodes with our taint: lift it, report what they wait for, or restore a removed taint.

    In mode ticket also a ticket for each that was cordoned without one; that is not counted: the node is out.
    """
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
        elif settings.mode == "ticket" and record.get("action") == "cordon" and not is_repaired(node):
            faults = tuple(Fault.from_id(id) for id in record.get("faults", ()) if id.count("|") >= 4)
            steps.append(Step("ticket", name, kind, faults, "the node was cordoned without one"))
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


STRENGTH = ("observe", "cordon", "ticket")
"""Actions, weakest first."""


def update_quiet(
    quiet_since: Mapping[str, float],
    names: Iterable[str],
    faults: Iterable[Fault],
    now: float,
    unmeasured: Collection[str] = (),
) -> dict[str, float]:
    """Since when each node of these names has been observed without a fault that counts.

    Pass an empty ``quiet_since`` after any time without an answer: no answer does not mean no fault. The time
    also restarts for ``unmeasured``, existing nodes with at least one GPU that is not measured.
    """
    faulty = {fault.node for fault in faults if fault.kind in RANK}
    restarted = {*faulty, *unmeasured}
    return {name: now if name in restarted else quiet_since.get(name, now) for name in {*names, *faulty}}


def observed_names(nodes: Iterable[Node], state: State) -> set[str]:
    """Names of the nodes to observe: existing ones, and those with spent faults."""
    return {node.name for node in nodes} | {id.partition("|")[0] for id in state.spent}


def action_limit(settings: Settings, nodes: Iterable[Node], state: State) -> int:
    """Actions allowed per window: the budget's share of the nodes, from 1 to ``settings.max_actions``."""
    share = max(1, int(settings.budget * _count_nodes(nodes, state) + 1e-9))  # 0.29 * 100 is not quite 29
    return share if settings.max_actions is None else min(share, settings.max_actions)


def _count_nodes(nodes: Iterable[Node], state: State) -> int:
    """Number of nodes that the budget is a share of: at most those of the first action in the window."""
    return min([len({node.uid for node in nodes}), *(int(action["of"]) for action in state.actions[:1])])


def decide(
    settings: Settings,
    nodes: Iterable[Node],
    faults: Iterable[Fault],
    state: State,
    quiet_since: Mapping[str, float],
    now: float,
) -> tuple[list[Step], State]:
    """The steps to do now, and the new state; store the state before carrying out the steps."""
    by_name = {node.name: node for node in nodes}
    new_state = _prune(settings, state, by_name, quiet_since, now)
    active: dict[str, list[Fault]] = {}
    for fault in sorted(faults):
        if fault.kind in RANK and fault.node in by_name:
            active.setdefault(fault.node, []).append(fault)
    retries = _retry_steps(settings, new_state, by_name, active, now)
    others = {name: node for name, node in by_name.items() if name not in {step.node for step in retries}}
    recoveries = recovery_steps(settings, new_state, others, active, quiet_since, now)
    actions: list[Step] = []
    due = {name: _new_faults(settings, new_state, by_name[name], active[name], now) for name in active}
    for name in sorted(filter(due.get, due), key=lambda name: (-_max_rank(due[name]), name)):
        # The next action overwrites the node's record with other faults, so these are kept as spent.
        handled = {fault.id for fault in active[name]} - {fault.id for fault in due[name]}
        new_state.spent |= dict.fromkeys(handled, by_name[name].uid)
        actions += _new_steps(settings, new_state, by_name, name, due[name], now)
    # One change of a node per round: after it, the node is no longer the one that was read.
    changed = {step.node for step in actions if step.action in STRENGTH}
    return [*(step for step in (*retries, *recoveries) if step.node not in changed), *actions], new_state


def reset_breaker(state: State) -> State:
    """The state after a person closed the breaker: counting restarts; unfinished actions are kept."""
    unfinished = [action for action in state.actions if not action["done"]]
    return replace(state, actions=unfinished, breaker=None)


def mark_done(state: State, at: float, node: str, now: float) -> State:
    """The state with the action of ``at`` and ``node`` done; it counts from ``now``."""
    done, key = {"at": now, "done": True}, (at, node)
    actions = [{**item, **done} if (item["at"], item["node"]) == key else item for item in state.actions]
    return replace(state, actions=actions)


def _prune(
    settings: Settings, state: State, nodes: Mapping[str, Node], quiet_since: Mapping[str, float], now: float
) -> State:
    """The state without outdated entries, and without observed actions once the loop acts.

    Unfinished actions stay until they are done: they may fail for longer than a window.
    """
    if state.observed and settings.is_acting:
        state = _without_observed(state)
    start = now - settings.window_s
    actions = [dict(action) for action in state.actions if action["at"] > start or not action["done"]]
    spent = {}
    for id, uid in state.spent.items():
        since = quiet_since.get(id.partition("|")[0], now)
        if now - since < settings.settle_s:
            spent[id] = uid
    breaker = dict(state.breaker) if state.breaker else None
    return State(not settings.is_acting, actions, spent, breaker)


def _without_observed(state: State) -> State:
    """The state without what was only observed."""
    actions = [action for action in state.actions if action["action"] != "observe"]
    spent = {id: action["uid"] for action in actions for id in action["faults"]}
    breaker = state.breaker if state.breaker and not state.breaker.get("observed", True) else None
    return State(False, actions, spent, breaker)


def _retry_steps(
    settings: Settings, state: State, nodes: Mapping[str, Node], active: Mapping[str, list[Fault]], now: float
) -> list[Step]:
    """Steps for unfinished actions, which are counted already; none while a repaired node waits."""
    steps = []
    for entry in state.actions:
        if entry["done"] or (not settings.is_acting and entry["action"] != "observe"):
            continue
        node = nodes.get(entry["node"])
        reported = tuple(fault for fault in active.get(entry["node"], ()) if fault.id in entry["faults"])
        if (
            node is None
            or node.uid != entry["uid"]
            or not (reported or _is_cordoned(entry, node) or _is_same_boot(entry, node))
        ):
            entry |= {"done": True, "over": True, "at": now}
            continue
        if _is_cordoned(entry, node) and is_repaired(node):
            continue
        action = min(entry["action"], settings.mode, key=STRENGTH.index)
        faults = reported or tuple(map(Fault.from_id, entry["faults"]))
        reason = "retry of an unfinished action"
        steps.append(Step(action, node.name, entry["class"], faults, reason, entry["at"]))
    return steps


def _is_cordoned(action: Mapping[str, Any], node: Node) -> bool:
    return bool((node.record or {}).get("class", node.taint) == action["class"])


def _is_same_boot(action: Mapping[str, Any], node: Node) -> bool:
    """Whether the node has not been rebooted since the action; true of actions of earlier versions."""
    return bool(action.get("boot", node.boot_id) == node.boot_id)


def _new_faults(settings: Settings, state: State, node: Node, faults: list[Fault], now: float) -> list[Fault]:
    """Faults without an action; on a new node of an old name, those of the old node must fade first."""
    recorded = set((node.record or {}).get("faults", ()))
    old_enough = now - node.first_seen >= settings.settle_s
    return [
        fault
        for fault in faults
        if fault.id not in recorded
        and (fault.id not in state.spent or (state.spent[fault.id] != node.uid and old_enough))
    ]


def _new_steps(
    settings: Settings, state: State, nodes: Mapping[str, Node], name: str, faults: list[Fault], now: float
) -> list[Step]:
    node, rank = nodes[name], _max_rank(faults)
    kind = next(kind for kind, value in RANK.items() if value == rank)
    if _done_rank(state, node) >= rank:
        state.spent |= {fault.id: node.uid for fault in faults}
        return [Step("note", name, kind, tuple(faults), "the node is already tainted")]
    limit = action_limit(settings, nodes.values(), state)
    if state.breaker is None and len(state.actions) >= limit:
        text = "1 action" if len(state.actions) == 1 else f"{len(state.actions)} actions"
        reason = f"{text} in {settings.window_s:g} s, and the budget is {limit}"
        state.breaker = {"since": now, "why": reason, "withheld": [], "observed": not settings.is_acting}
    if state.breaker is not None:
        if name in state.breaker["withheld"]:
            return []
        state.breaker["withheld"] = [*state.breaker["withheld"], name]
        return [Step("withhold", name, kind, tuple(faults), f"breaker open: {state.breaker['why']}")]
    for entry in state.actions:
        if entry["uid"] == node.uid and not entry["done"]:
            entry |= {"done": True, "over": True, "at": now}  # this one does more
    entry = {"at": now, "node": name, "uid": node.uid, "boot": node.boot_id, "class": kind}
    ids = [fault.id for fault in faults]
    node_count = _count_nodes(nodes.values(), state)
    entry |= {"action": settings.mode, "done": False, "over": False, "of": node_count, "faults": ids}
    state.actions.append(entry)
    state.spent |= dict.fromkeys(ids, node.uid)
    return [Step(settings.mode, name, kind, tuple(faults), faults[0].text, now)]


def _done_rank(state: State, node: Node) -> int:
    """Rank of what was done to the node, 0 for nothing."""
    ranks = [RANK.get(str((node.record or {}).get("class")), 0)]
    ranks += [RANK[item["class"]] for item in state.actions if item["uid"] == node.uid and not item["over"]]
    return max(ranks)


def _max_rank(faults: Iterable[Fault]) -> int:
    return max(RANK[fault.kind] for fault in faults)
