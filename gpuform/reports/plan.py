"""A plan as tables, pictures and JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from gpuform.checkout.listing import count_of
from gpuform.reports.rehearsal import Part, nodes_and_pods, pending_lines, verdict_line
from gpuform.reports.tables import build_table
from gpuform.usage.rehearsal import Outcome
from infra.model.base.prices import HOURS_PER_MONTH
from infra.planner.explain import Alternative
from infra.planner.plan import Group, Plan, is_same
from infra.planner.proposal import PART_LABEL, Proposal
from infra.planner.steps import Step

_CELL = 6
"""Letters for each memory slice in a picture: eight of them and a pool's name fit into 80 columns."""


@dataclass(frozen=True)
class Answer:
    """``why``: the alternatives, if they were asked for. ``left``: what is not planned, in sentences."""

    plan: Plan
    proposal: Proposal
    steps: Sequence[Step]
    why: Sequence[Alternative]
    left: Sequence[str]


def parts(answer: Answer) -> Iterator[Part]:
    """Pools, demands, pictures and alternatives."""
    yield from (_pools(answer.proposal), "", _placements(answer.plan, answer.proposal), "")
    yield from _pictures(answer.proposal)
    if answer.why:
        yield from ("", _alternatives(answer.why))


def closing(answer: Answer) -> Iterator[Part]:
    """The price with its proof, and the updates if one is not enough."""
    yield from _summary(answer.plan, answer.proposal)
    if len(answer.steps) > 1 or any(step.waiting for step in answer.steps):
        yield from ("", _steps(answer.steps))


def notes(answer: Answer) -> Iterator[str]:
    """Labels that nodes need first, and what is left out or refused."""
    yield from _labelled(answer.steps)
    for pool in answer.proposal.unused:
        yield f"pool {pool} is left out: no workload of the stack uses it"
    for pool in answer.proposal.emptied:
        yield f"pool {pool} stays without nodes: a quota names it"
    yield from answer.left
    if answer.proposal.refusal:
        yield f"gpuform would refuse these pools: {answer.proposal.refusal}"
    if answer.proposal.avoided:
        yield f"gpuform would refuse a cheaper plan: {answer.proposal.avoided}"


def rehearsed(proposal: Proposal, outcome: Outcome) -> Iterator[Part]:
    """What the real scheduler and Karpenter bought beside what was planned."""
    bought = nodes_and_pods(outcome)
    rows = [(name, f"{one.nodes}x {_machine(one)}", *bought[name]) for name, one in proposal.groups]
    yield build_table("rehearsed", ("pool", "planned", "bought", "pods placed"), rows, whole=("pool",))
    yield from (*pending_lines(outcome), verdict_line(outcome))


def _pools(proposal: Proposal) -> Table:
    rows = [
        (
            name,
            _nodes(name, group),
            _machine(group),
            group.sharing.text,
            str(group.nodes * group.candidate.gpus),
        )
        for name, group in proposal.groups
    ]
    columns = ("pool", "nodes", "machine", "sharing", "GPUs")
    return build_table("pools", columns, rows, whole=("pool", "nodes", "GPUs"))


def _nodes(name: str, group: Group) -> str:
    pool, now = group.candidate.pool, group.candidate.now
    is_new = pool is None or pool.name != name
    return str(group.nodes) if is_new or now in (None, group.nodes) else f"{group.nodes} (now {now})"


def _machine(group: Group) -> str:
    one = group.candidate
    return one.machine or f"{one.gpus} x {one.gpu.name}"


def _placements(plan: Plan, proposal: Proposal) -> Table:
    needs = {need.name: need for need in plan.needs}
    rows = []
    for one in proposal.placed:
        need = needs[one.demand]
        memory = f"{need.memory_mib / 1024:.1f} GiB" if need.memory_mib else "-"
        compute = f"{need.compute:.0%}" if need.compute else "-"
        rows.append((one.demand, str(one.pods), one.part, one.pool, memory, compute))
    columns = ("demand", "pods", "each gets", "in pool", "needs memory", "throughput")
    return build_table("demands", columns, rows, whole=("pods",), optional=("throughput", "needs memory"))


def _pictures(proposal: Proposal) -> Iterator[str]:
    """One GPU of each pool to scale: an eighth of its memory, or a share, is as wide as the next."""
    width = max(len(name) for name, _ in proposal.groups)
    for name, group in proposal.groups:
        yield f"{name:{width}}  {_picture(group)}  x {group.nodes * group.candidate.gpus}"


def _picture(group: Group) -> str:
    geometry, sharing = group.candidate.gpu.geometry, group.sharing
    if not sharing.layout or geometry is None:
        text = sharing.text.partition(",")[0] if sharing.replicas == 1 else f"1/{sharing.replicas}"
        number = min(sharing.replicas, 8)
        size = 8 * _CELL // number - 2
        return number * f"[{text[:size]:^{size}}]" + ("..." if number < sharing.replicas else "")
    unit = 8 * _CELL // geometry.memory
    line = ["·"] * geometry.memory * unit
    widths = {profile.name: profile.memory * unit for profile in geometry.profiles}
    for profile, start in geometry.placements(dict(sharing.layout)) or ():
        size = widths[profile]
        line[start * unit : start * unit + size] = f"[{profile[: size - 2]:^{size - 2}}]"
    return "".join(line)


def _alternatives(why: Sequence[Alternative]) -> Table:
    rows, last = [], ("", "")
    for one in why:
        shown = ("", "") if (one.demand, one.gpu) == last else (one.demand, one.gpu)
        last = one.demand, one.gpu
        rows.append((*shown, one.part, ("chosen", "green") if one.chosen else one.reason))
    columns = ("demand", "GPU", "part", "")
    return build_table("alternatives", columns, rows, whole=("part",), optional=("GPU",))


def _steps(steps: Sequence[Step]) -> Table:
    """What each update changes; counts are nodes."""
    rows = []
    for number, step in enumerate(steps, 1):
        nodes = [f"{name} {now} -> {then}" for name, now, then in step.changes]
        moved = [f"{name}, waits for it" if name in step.waiting else name for name in step.moved]
        rows.append((str(number), "\n".join(nodes) or "-", "\n".join(moved) or "-"))
    return build_table(
        "updates", ("update", "nodes", "workloads that get other GPUs"), rows, whole=("update",)
    )


def _labelled(steps: Sequence[Step]) -> Iterator[str]:
    """Nodes of a running cluster for which labels decide in which pool they are."""
    for number, step in enumerate(steps, 1):
        for pool in sorted({*step.labels.values()}):
            nodes = " ".join(sorted(node for node, name in step.labels.items() if name == pool))
            yield f"before update {number}: kubectl label node {nodes} {PART_LABEL}={pool} --overwrite"


def _summary(plan: Plan, proposal: Proposal) -> Iterator[str]:
    proof = "proved: no plan for these demands needs less"
    if plan.price - plan.bound > 1e-4 * max(plan.price, 1):
        proof = f"no plan needs less than {_amount(plan.bound, plan.unit)}"
        if not plan.complete:
            proof += "; the search was stopped, --limit gives it more time"
    yield f"{_amount(plan.price, plan.unit)}; {proof}"
    if plan.now is not None:
        yield f"the pools as declared: {_amount(plan.now, plan.unit)}"
    changed = [
        group.nodes if group.candidate.now is None else min(group.nodes, group.candidate.now)
        for name, group in proposal.groups
        if (pool := group.candidate.pool) and pool.name == name and not is_same(pool, group.sharing)
    ]
    if number := sum(changed):
        nodes = count_of(number, "node")
        yield f"{nodes} would be shared in another way; `gpuform preview` shows which pods that evicts"


def _amount(price: float, unit: str) -> str:
    if unit == "GPUs":
        return count_of(round(price), "GPU")
    return f"{price:,.2f} USD per hour ({price * HOURS_PER_MONTH:,.0f} a month)"


def to_document(answer: Answer, rehearsal: Mapping[str, Any] | None) -> dict[str, Any]:
    plan, proposal = answer.plan, answer.proposal
    return {
        "unit": plan.unit,
        "price": round(plan.price, 4),
        "bound": round(plan.bound, 4),
        "complete": plan.complete,
        "now": None if plan.now is None else round(plan.now, 4),
        "nodes": [
            {
                "pool": name,
                "nodes": group.nodes,
                "machine": group.candidate.machine or None,
                "gpu": group.candidate.gpu.name,
                "gpus": group.nodes * group.candidate.gpus,
                "sharing": group.sharing.text,
            }
            for name, group in proposal.groups
        ],
        "pools": list(proposal.pools),
        "demands": [asdict(one) for one in proposal.placed],
        "steps": [
            {
                "nodes": [{"pool": name, "before": now, "after": then} for name, now, then in step.changes],
                "labels": [{"node": node, PART_LABEL: pool} for node, pool in step.labels.items()],
                "moved": list(step.moved),
                "waiting": list(step.waiting),
            }
            for step in answer.steps
        ],
        "alternatives": [asdict(one) for one in answer.why],  # with --explain
        "left_out": list(proposal.unused),
        "notes": list(answer.left),
        "refusal": proposal.refusal or None,
        "rehearsed": rehearsal,
    }
