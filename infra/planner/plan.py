"""Which nodes, how shared, hold all demands at the least price.

All GPUs of a node are used alike, because a pool has one way of sharing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from infra.model.base.errors import InputError
from infra.model.environment import Environment
from infra.model.gpu.mig import format_layout, is_plain
from infra.model.pool import allocatable
from infra.model.pool.pool import Pool
from infra.model.pool.sharing import Mig
from infra.planner import packing, sharing_costs
from infra.planner.candidates import Candidate, lacks
from infra.planner.need import Need
from infra.planner.packing import Demand, Kind, Use
from infra.planner.sharing_costs import How, Part

_CHANGE = 40.0
"""Cost of a way of sharing that a pool does not have now, against 1 for each pool and for each changed node;
in packing's second model."""
_REMEDIES = {
    "efa": "set aws.efa of a pool",
    "hugepages": "set hugepages of a pool",
    "spot": "set interruptible",
}
_RANK: Mapping[How, float] = {"exclusive": 0.0, "mig": 0.1, "mps": 0.2, "time_slicing": 0.3}


@dataclass(frozen=True)
class Sharing:
    """How all GPUs of some nodes are used.

    ``layout`` for MIG, ``replicas`` for shares, which have one owner (``trust``). ``as_now``: as the pool
    declares, which has what the planner does not propose: shares of slices, or only some GPUs cut.
    """

    how: How
    layout: tuple[tuple[str, int], ...] = ()
    replicas: int = 1
    trust: str = ""
    as_now: bool = False

    @property
    def text(self) -> str:
        if self.layout:
            return f"MIG {format_layout(dict(self.layout))}"
        if self.as_now:
            return "as now"
        name = sharing_costs.NAMES[self.how]
        return name if self.replicas == 1 else f"{name}, {self.replicas} pods"


@dataclass(frozen=True)
class Group:
    """Nodes of one candidate with one way of sharing, and the pods on them by demand and slot."""

    candidate: Candidate
    sharing: Sharing
    nodes: int
    pods: Mapping[str, Mapping[Kind, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """What ``packing.pack`` was asked."""

    uses: Sequence[Use]
    demands: Sequence[Demand]
    stock: Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """The answer: ``price`` in ``unit``, no less than ``bound``; ``now``: that of the pools as declared.

    ``unit`` is USD per hour, or GPUs if a candidate has no price.
    """

    needs: tuple[Need, ...]
    candidates: tuple[Candidate, ...]
    groups: tuple[Group, ...]
    parts: Mapping[Kind, Part]
    unit: str
    price: float
    bound: float
    complete: bool
    now: float | None
    problem: Problem

    def price_with(self, need: str, kinds: Collection[Kind]) -> float | None:
        """The price if every pod of the demand had a slot of these kinds; None if there are too few hosts.

        Raises TimeoutError if that is not found in a second.
        """
        only = [
            replace(one, gives={kind: one.gives[kind] for kind in kinds}) if one.name == need else one
            for one in self.problem.demands
        ]
        try:
            return packing.pack(self.problem.uses, only, 1.0, self.problem.stock).price
        except packing.Unsatisfiable:
            return None


def make_plan(
    env: Environment | None, needs: Sequence[Need], candidates: Sequence[Candidate], limit_s: float = 10.0
) -> Plan:
    """The cheapest nodes for all demands. Raises InputError for a demand that no candidate can serve."""
    if not candidates:
        fact = "neither a pool with GPUs nor a machine is given"
        raise InputError(
            "machines", fact, "name machines in the file of demands, as machines: [p4d.24xlarge]"
        )
    needs = [need for need in needs if need.amount]
    if not needs:
        fact = "no workload requests a GPU that is not allocated by claim"
        raise InputError("workloads", fact, "give a file of demands with --demands")
    priced = all(one.price is not None for one in candidates)
    model = _Model(needs, priced)
    for candidate in candidates:
        model.add(candidate)
    stock = {one.pool.name: one.limit for one in candidates if one.pool and one.limit is not None}
    demands = model.demands()
    try:
        answer = packing.pack(model.uses, demands, limit_s, stock, simplify=True)
    except packing.Unsatisfiable as error:
        raise _unsatisfiable(str(error), needs, candidates) from None
    except TimeoutError:
        raise InputError("--limit", f"no plan was found in {limit_s:g} s", "allow more seconds") from None
    now = None
    if env and all(need.now for need in needs):
        now = _price_now(model, candidates, demands, limit_s)
    return Plan(
        tuple(needs),
        tuple(candidates),
        tuple(_groups(model, answer)),
        model.parts,
        "USD per hour" if priced else "GPUs",
        answer.price,
        answer.bound,
        answer.complete,
        now,
        Problem(model.uses, demands, stock),
    )


def _unsatisfiable(name: str, needs: Sequence[Need], candidates: Sequence[Candidate]) -> InputError:
    need = next((need for need in needs if need.name == name), None)
    if need is None:
        return InputError(
            "hosts", "the demands need more hosts than the pools have", "add hosts, or demand less"
        )
    against = [(one, _against(need, one)) for one in candidates]
    best, facts = min(against, key=lambda item: (len(item[1]), -item[0].gpu.memory_mib, -item[0].gpus))
    fact = f"no node can serve it; {best.name}: {'; '.join(facts.values())}"
    remedies = [*(_REMEDIES[key] for key in facts if key in _REMEDIES), "name another machine in machines"]
    return InputError(name, fact, f"{', '.join(remedies)}, or demand less")


def _against(need: Need, one: Candidate) -> dict[str, str]:
    fact = sharing_costs.refusal(need, one.gpu, sharing_costs.whole(one.gpu))
    return ({"gpu": fact} if fact else {}) | lacks(need, one)


class _Model:
    """Uses of all candidates, and for each demand what their slots give."""

    def __init__(self, needs: Sequence[Need], priced: bool) -> None:
        self.needs, self.priced = needs, priced
        self.total = sum(need.amount for need in needs)
        self.uses: list[Use] = []
        self.used: dict[str, tuple[Candidate, Sharing]] = {}
        """By the use's name."""
        self.parts: dict[Kind, Part] = {}
        self.gives: dict[str, dict[Kind, float]] = defaultdict(dict)
        self.room: dict[str, dict[Kind, Mapping[Kind, float]]] = defaultdict(dict)
        self.costs: dict[str, dict[Kind, float]] = defaultdict(dict)

    def demands(self) -> list[Demand]:
        return [
            Demand(
                need.name,
                need.amount,
                self.gives[need.name],
                self.room[need.name],
                self.costs[need.name],
                alike=not need.measured and need.replicas > 1,
            )
            for need in self.needs
        ]

    def price(self, one: Candidate) -> float:
        """Of one node, in the plan's unit."""
        return one.price if self.priced and one.price is not None else float(one.gpus)

    def add(self, one: Candidate) -> None:
        needs = [need for need in self.needs if not lacks(need, one)]
        if one.pool and not _expressible(one.pool):
            self._add_now(one, needs)
        self._add_whole(one, needs)
        if one.gpu.geometry is not None:
            self._add_slices(one, needs)
        for how in ("mps", "time_slicing"):
            for trust in sorted({need.trust for need in needs}):
                self._add_shares(one, how, trust, [need for need in needs if need.trust == trust])

    def _offer(self, one: Candidate, room: Kind, kind: Kind, part: Part, needs: Sequence[Need]) -> bool:
        """Note which demands a slot of this kind suits; whether there is any."""
        suited = [need for need in needs if not sharing_costs.refusal(need, one.gpu, part)]
        for need in suited:
            self.parts[kind] = part
            self.gives[need.name][kind] = sharing_costs.gives(need, part)
            self.room[need.name][kind] = {
                (room, name): float(need.room[name]) for name in one.room if need.room[name]
            }
            # More of a GPU is better at the same price; in sum far less than one use.
            rank = _RANK[part.how] + 0.1 * (1 - part.compute)
            self.costs[need.name][kind] = rank / self.total
        return bool(suited)

    def _use(self, one: Candidate, room: Kind, sharing: Sharing, slots: Mapping[Kind, int]) -> None:
        kept = one.pool is not None and is_same(one.pool, sharing)
        if one.fixed and not kept:
            return
        use = Use(
            f"{one.name}: {sharing}: {sorted(slots.items(), key=str)}",
            slots,
            self.price(one),
            {(room, name): float(amount) for name, amount in one.room.items() if amount},
            one.pool.name if one.pool and one.limit is not None else "",
            1.0 if kept else _CHANGE,
            0.0 if kept else 1.0,
        )
        self.uses.append(use)
        self.used[use.name] = one, sharing

    def _add_now(self, one: Candidate, needs: Sequence[Need]) -> None:
        assert one.pool is not None
        room, slots = (one.name, "now"), dict[Kind, int]()
        for resource, count in allocatable.resources(one.pool, one.gpus).items():
            part = sharing_costs.guaranteed(one.pool, one.gpu, resource)
            kind = (one.name, "now", resource)
            if self._offer(one, room, kind, part, [need for need in needs if need.now == resource]):
                slots[kind] = count
        if slots:
            how = self.parts[next(iter(slots))].how
            self._use(one, room, Sharing(how, as_now=True), slots)

    def _add_whole(self, one: Candidate, needs: Sequence[Need]) -> None:
        """A node's GPUs in sets of the sizes that pods need."""
        part, kinds = sharing_costs.whole(one.gpu), dict[int, Kind]()
        room = (one.name, "exclusive")
        for size in sorted({need.count for need in needs}):
            kind = (one.name, "exclusive", size)
            if self._offer(one, room, kind, part, [need for need in needs if need.count == size]):
                kinds[size] = kind
        for sizes in largest_sets(one.gpus, sorted(kinds)):
            slots: dict[Kind, int] = {kinds[size]: count for size, count in sizes.items()}
            self._use(one, room, Sharing("exclusive"), slots)

    def _add_slices(self, one: Candidate, needs: Sequence[Need]) -> None:
        assert one.gpu.geometry is not None
        room = (one.name, "mig")
        kinds: dict[str, Kind] = {}
        for profile in one.gpu.geometry.profiles:
            if is_plain(profile):
                kind = (one.name, "mig", profile.name)
                if self._offer(one, room, kind, sharing_costs.mig_slice(one.gpu, profile), needs):
                    kinds[profile.name] = kind
        layouts = packing.largest_layouts(one.gpu.geometry)
        if one.pool and one.pool.image.family == "Bottlerocket":  # as many slices of one profile as fit
            layouts = [layout for layout in layouts if len(layout) == 1 and one.gpu.bottlerocket]
        own = one.pool.slices(1) if one.pool and _expressible(one.pool) else {}
        if own and own not in layouts:
            layouts.append(own)
        for layout in layouts:
            slots: dict[Kind, int] = {
                kinds[name]: count * one.gpus for name, count in layout.items() if name in kinds
            }
            if slots:
                ordered = tuple(sorted(layout.items(), key=lambda item: item[0], reverse=True))
                self._use(one, room, Sharing("mig", layout=ordered), slots)

    def _add_shares(self, one: Candidate, how: How, trust: str, needs: Sequence[Need]) -> None:
        """Only numbers of shares beyond which a demand would get too little: others offer less."""
        numbers = set()
        if one.pool and one.pool.sharing.kind == how and needs:
            numbers.add(getattr(one.pool.sharing, "replicas", 1))
        for need in needs:
            for part in sharing_costs.parts(one.gpu, need):
                if part.how == how and not sharing_costs.refusal(need, one.gpu, part):
                    numbers.add(part.replicas)
        make = sharing_costs.mps_client if how == "mps" else sharing_costs.time_slice
        for replicas in sorted(numbers):
            room, kind = (one.name, how, replicas, trust), (one.name, how, replicas, trust)
            if self._offer(one, room, kind, make(one.gpu, replicas), needs):
                self._use(
                    one, room, Sharing(how, replicas=replicas, trust=trust), {kind: replicas * one.gpus}
                )


def _expressible(pool: Pool) -> bool:
    sharing = pool.sharing
    return not isinstance(sharing, Mig) or (sharing.share is None and pool.cuts[0].devices is None)


def is_same(pool: Pool, sharing: Sharing) -> bool:
    """Whether the pool is shared like this now."""
    if sharing.as_now:
        return True
    if pool.sharing.kind != sharing.how or not _expressible(pool):
        return False
    if sharing.how == "mig":
        return pool.slices(1) == dict(sharing.layout)
    return getattr(pool.sharing, "replicas", 1) == sharing.replicas


def largest_sets(gpus: int, sizes: Sequence[int]) -> Iterator[dict[int, int]]:
    """Numbers of sets of each size to which no set can be added on one node."""
    if not sizes:
        return
    *rest, size = sizes
    if not rest:
        yield {size: gpus // size} if gpus // size else {}
        return
    for count in range(gpus // size + 1):
        for found in largest_sets(gpus - count * size, rest):
            if count or found:
                yield found | ({size: count} if count else {})


def _price_now(
    model: _Model,
    candidates: Sequence[Candidate],
    demands: Sequence[Demand],
    limit_s: float,
) -> float | None:
    """Price of the pools as declared: their fixed nodes, and as many elastic ones as the demands need.

    None if that is not found in time.
    """
    price, fixed = 0.0, set()
    for one in candidates:
        if one.pool is None or one.pool.name in fixed:
            continue
        if (nodes := one.now) is not None:
            price += model.price(one) * nodes
            fixed.add(one.pool.name)
    uses = []
    for use in model.uses:
        one, sharing = model.used[use.name]
        if one.pool and one.pool.name not in fixed and is_same(one.pool, sharing):
            uses.append(use)
    offered = {kind for use in uses for kind in use.slots}
    rest = [demand for demand in demands if demand.gives.keys() & offered]
    try:
        return price + (packing.pack(uses, rest, limit_s).price if rest else 0.0)
    except TimeoutError:
        return None


def _groups(model: _Model, answer: packing.Packing) -> Iterator[Group]:
    """Nodes of each use, with the pods that get their slots; uses of whole GPUs of a candidate are one."""
    taken = {name: dict(kinds) for name, kinds in answer.taken.items()}
    merged: dict[tuple[str, Sharing], tuple[Candidate, int, dict[Kind, int]]] = {}
    for use in model.uses:
        one, sharing = model.used[use.name]
        if nodes := answer.gpus.get(use.name, 0):
            _, before, slots = merged.get((one.name, sharing), (one, 0, {}))
            for kind, count in use.slots.items():
                slots[kind] = slots.get(kind, 0) + count * nodes
            merged[one.name, sharing] = one, before + nodes, slots
    for (_, sharing), (one, nodes, slots) in merged.items():
        pods: dict[str, dict[Kind, int]] = {}
        for name, kinds in taken.items():
            for kind in kinds.keys() & slots.keys():
                if count := min(kinds[kind], slots[kind]):
                    pods.setdefault(name, {})[kind] = count
                    kinds[kind] -= count
                    slots[kind] -= count
        yield Group(one, sharing, nodes, pods)
