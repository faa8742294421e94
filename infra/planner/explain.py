"""Why a demand gets what it gets: each part of a GPU that it could have, and what speaks against it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from infra.model.gpu.models import Gpu
from infra.planner import sharing_costs
from infra.planner.candidates import lacks
from infra.planner.need import Need
from infra.planner.packing import Kind
from infra.planner.plan import Plan, is_same
from infra.planner.sharing_costs import Part

_MOST_PRICED = 30
"""Demands of a plan in which each alternative gets its price: one more search for each."""


@dataclass(frozen=True)
class Alternative:
    """``pods``: on one GPU that is used only so. ``reason``: why it does not suit, or is not chosen."""

    demand: str
    gpu: str
    part: str
    pods: int
    chosen: bool
    reason: str


def alternatives(plan: Plan) -> Iterator[Alternative]:
    """By demand, GPU model and part, the largest part first; models that a demand excludes are left out."""
    for need in plan.needs:
        models = dict.fromkeys(one.gpu for one in plan.candidates)
        for gpu in models:
            if need.models is None or gpu.name in need.models:
                yield from _of_gpu(plan, need, gpu)


def _of_gpu(plan: Plan, need: Need, gpu: Gpu) -> Iterator[Alternative]:
    nodes = [one for one in plan.candidates if one.gpu == gpu]
    names = {one.name for one in nodes}
    lacking = (f"{one.name}: {fact}" for one in nodes for fact in lacks(need, one).values())
    without = next(lacking, "no node may offer it")
    offered: dict[Part, list[Kind]] = {}
    for kind in next(one for one in plan.problem.demands if one.name == need.name).gives:
        if isinstance(kind, tuple) and kind[0] in names:
            offered.setdefault(plan.parts[kind], []).append(kind)
    used = {kind for group in plan.groups for kind in group.pods.get(need.name, ())}
    chosen = {plan.parts[kind] for kind in used}
    mine = [group for group in plan.groups if need.name in group.pods]
    keeps = all((pool := group.candidate.pool) is not None and is_same(pool, group.sharing) for group in mine)
    for part in dict.fromkeys([*sharing_costs.parts(gpu, need), *offered]):
        if need.count > 1 and part.how != "exclusive":
            continue
        pods = part.replicas
        if part.profile and gpu.geometry is not None:
            pods *= gpu.geometry.max_slices(part.profile)
        kinds = offered.get(part, [])
        is_chosen = any(kind in used for kind in kinds)
        reason = sharing_costs.refusal(need, gpu, part) or ("" if kinds else without)
        if not reason and not is_chosen:
            reason = _against(plan, need, part, kinds, chosen, keeps)
        yield Alternative(need.name, gpu.name, part.text, pods, is_chosen, reason)


def _against(
    plan: Plan, need: Need, part: Part, kinds: Collection[Kind], chosen: Collection[Part], keeps: bool
) -> str:
    """What speaks against a part that suits: by what it makes the whole plan dearer, or what is worse."""
    if len(plan.needs) > _MOST_PRICED:
        return "suits"
    try:
        price = plan.price_with(need.name, kinds)
    except TimeoutError:
        return "suits"
    if price is None:
        return "there are too few hosts for it"
    if price > plan.price * (1 + 1e-9):
        more = price - plan.price
        gpus = f"{more:g} more GPU{'' if more == 1 else 's'}"
        return f"{gpus if plan.unit == 'GPUs' else f'{more:,.2f} USD more per hour'} in all"
    if keeps:
        return "costs the same, and would change how the pool is shared"
    if not part.isolated and all(one.isolated for one in chosen):
        return "costs the same, and a neighbour can end or delay its pods"
    if part.compute < min(one.compute for one in chosen):
        return "costs the same, and is less of a GPU"
    return "costs the same, and leaves other demands less, or needs one more pool"
