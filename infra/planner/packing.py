"""The cheapest set of GPUs that holds all demands, by mixed-integer programming with a proved bound.

A GPU is used in one of several ways (`Use`): whole, cut into a MIG layout, or shared. Each way offers slots
of some kinds. A demand needs an amount (replicas, or requests per second), and each slot that it takes of a
kind gives it a part of that amount. The model has one column per use, for the number of its GPUs, and one per
demand and kind of slot:

    minimize   sum(price[u] * gpus[u])
    such that  sum(gives[d, k] * taken[d, k] for k) >= amount[d]          for each demand d
               sum(taken[d, k] for d) <= sum(slots[u, k] * gpus[u] for u)  for each kind k

and the same for what slots take beside the GPU (`Use.room`: cores, memory) and for machines of which there is
a limited number (`Use.stock`). Kinds of slots are few, and layouts of a GPU some dozens, so the model has
thousands of columns at most. Room is summed over all GPUs of a kind, not filled node by node.

Among all answers of that price, a second model takes the one with the fewest different uses, then with the
least `Use.cost` and `Demand.costs`, which rank what the price does not.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.model.base.errors import InputError
from infra.model.gpu.mig import Geometry, is_plain

Kind = Hashable

TOLERANCE = 1e-6
"""HiGHS's own for integers and rows (its options mip_feasibility_tolerance, primal_feasibility_tolerance)."""
_SIMPLE_ENOUGH = 0.005
"""Relative gap of the second model, which ranks packings of the same price."""


@dataclass(frozen=True)
class Use:
    """One way to use a GPU, or all GPUs of a node: slots of each kind, and the price.

    ``room``: what it has of each thing that slots need. ``stock``: name of its machines, if they are limited.
    ``cost``: of having this use at all, ``each``: of each GPU with it, among packings of the same price.
    """

    name: str
    slots: Mapping[Kind, int]
    price: float = 1.0
    room: Mapping[Kind, float] = field(default_factory=dict)
    stock: str = ""
    cost: float = 1.0
    each: float = 0.0


@dataclass(frozen=True)
class Demand:
    """``gives``: what a slot of each kind contributes to ``amount``; others cannot serve it.

    ``needs``: what a slot of each kind takes of its room. ``costs``: of a slot of each kind, less than that
    of a use in sum, among packings of the same price.
    """

    name: str
    amount: float
    gives: Mapping[Kind, float]
    needs: Mapping[Kind, Mapping[Kind, float]] = field(default_factory=dict)
    costs: Mapping[Kind, float] = field(default_factory=dict)
    alike: bool = False
    """Whether all its slots are of one kind, as those of a Deployment's pods; each gives 1 then."""


@dataclass(frozen=True)
class Packing:
    """GPUs by use, and slots by demand and kind.

    ``price`` is their sum; no packing is cheaper than ``bound``. ``complete``: the search ended by itself.
    """

    gpus: Mapping[str, int]
    taken: Mapping[str, Mapping[Kind, int]]
    price: float
    bound: float
    complete: bool = True

    @property
    def gap(self) -> float:
        return max(0.0, self.price - self.bound)


class Unsatisfiable(ValueError):
    """No use offers a slot for the demand that the message names; without one the stock is too small."""


@dataclass
class _Model:
    """Columns and rows as HiGHS takes them; entries are by column."""

    costs: list[float] = field(default_factory=list)
    entries: list[dict[int, float]] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)

    def row(self, lower: float, upper: float) -> int:
        self.lower.append(lower)
        self.upper.append(upper)
        return len(self.lower) - 1

    def column(self, cost: float, entries: dict[int, float]) -> int:
        self.costs.append(cost)
        self.entries.append(entries)
        return len(self.costs) - 1


def largest_layouts(geometry: Geometry) -> list[dict[str, int]]:
    """Layouts of an empty GPU to which no slice can be added; each other one is part of one of these."""
    plain = [profile for profile in geometry.profiles if is_plain(profile)]
    found: list[dict[str, int]] = []

    def extend(layout: dict[str, int], rest: Sequence[str]) -> None:
        if all(not geometry.fits({**layout, one.name: layout.get(one.name, 0) + 1}) for one in plain):
            found.append(layout)
        for index, name in enumerate(rest):
            larger = {**layout, name: layout.get(name, 0) + 1}
            if geometry.fits(larger):
                extend(larger, rest[index:])

    extend({}, [profile.name for profile in plain])
    return found


def pack(
    uses: Sequence[Use],
    demands: Sequence[Demand],
    limit_s: float = 10.0,
    stock: Mapping[str, int] | None = None,
    simplify: bool = False,
) -> Packing:
    """The cheapest GPUs for all demands, or after ``limit_s`` the best found, with its bound.

    ``stock``: machines of each name. ``simplify``: run the second model too, with the same limit.

    Raises Unsatisfiable for a demand that no use can serve, TimeoutError if none was found in that time,
    InputError without highspy.
    """
    offered = {kind for use in uses for kind in use.slots}
    for demand in demands:
        if not demand.gives.keys() & offered:
            raise Unsatisfiable(demand.name)
    groups = _grouped(demands)
    model = _Model()
    kinds = {kind: model.row(-math.inf, 0.0) for kind in sorted(offered, key=str)}
    rooms = {room: model.row(-math.inf, 0.0) for use in uses for room in use.room}
    stocks = {name: model.row(0.0, float(most)) for name, most in (stock or {}).items()}
    for use in uses:
        entries = {kinds[kind]: -float(count) for kind, count in use.slots.items()}
        entries |= {rooms[room]: -float(amount) for room, amount in use.room.items()}
        model.column(use.price, entries | ({stocks[use.stock]: 1.0} if use.stock in stocks else {}))
    columns: list[dict[Kind, int]] = []
    for group in groups:
        # A group of one kind decides which: its columns count all its slots at once.
        unit = group.unit
        row = model.row(1.0, 1.0) if group.alike else model.row(group.amount, math.inf)
        columns.append({})
        for kind, part in group.gives.items():
            if kind in kinds:
                needs = {rooms[room]: unit * amount for room, amount in group.needs.get(kind, {}).items()}
                entries = {kinds[kind]: unit, row: 1.0 if group.alike else part}
                columns[-1][kind] = model.column(0.0, entries | needs)
    values, bound, complete = _solve(model, limit_s, _step(uses))
    price = sum(use.price * values[column] for column, use in enumerate(uses))
    if simplify:
        values = _simplified(model, uses, groups, columns, values, price, limit_s / 4)
    counts = {use.name: values[column] for column, use in enumerate(uses) if values[column]}
    slots = [
        {kind: int(group.unit) * values[column] for kind, column in row.items()}
        for group, row in zip(groups, columns, strict=True)
    ]
    taken = _handed_out(groups, slots)
    price = sum(use.price * counts.get(use.name, 0) for use in uses)
    return Packing(counts, taken, price, min(bound, price), complete)


def _simplified(
    model: _Model,
    uses: Sequence[Use],
    groups: Sequence[_Group],
    columns: Sequence[Mapping[Kind, int]],
    values: list[int],
    price: float,
    limit_s: float,
) -> list[int]:
    """Values for the same price with few uses, then little cost, from these values on."""
    start = [float(value) for value in values] + [float(values[column] > 0) for column in range(len(uses))]
    row = model.row(-math.inf, price + TOLERANCE * max(price, 1.0))
    for column, use in enumerate(uses):
        model.entries[column][row] = use.price
        most = price // use.price + 1 if use.price else sum(group.amount for group in groups)
        # GPUs of a use only if it is used: count <= most * used
        used = model.row(-math.inf, 0.0)
        model.entries[column][used] = 1.0
        model.costs[column] = use.each
        model.column(use.cost, {used: -float(most)})
    for group, kinds in zip(groups, columns, strict=True):
        for kind, column in kinds.items():
            model.costs[column] = group.unit * group.costs.get(kind, 0.0)
    return _solve(model, limit_s, 0.0, _SIMPLE_ENOUGH, start)[0]


@dataclass(frozen=True)
class _Group:
    """Demands that any slot serves alike: their replicas are interchangeable."""

    members: tuple[Demand, ...]
    amount: float
    gives: Mapping[Kind, float]
    needs: Mapping[Kind, Mapping[Kind, float]]
    costs: Mapping[Kind, float]
    alike: bool

    @property
    def unit(self) -> float:
        """Slots that one of its columns counts."""
        return self.amount if self.alike else 1.0


def _grouped(demands: Sequence[Demand]) -> list[_Group]:
    """Demands for whole slots (each gives 1) of the same kinds, needs and costs as one; the others alone."""
    alike: dict[Hashable, list[Demand]] = {}
    for demand in demands:
        whole = set(demand.gives.values()) == {1} and demand.amount == int(demand.amount)
        needs = frozenset((kind, *sorted(each.items(), key=str)) for kind, each in demand.needs.items())
        key = (frozenset(demand.gives), needs, frozenset(demand.costs.items()))
        alike.setdefault(key if whole and not demand.alike else demand.name, []).append(demand)
    return [
        _Group(
            tuple(members),
            sum(one.amount for one in members),
            members[0].gives,
            members[0].needs,
            members[0].costs,
            members[0].alike,
        )
        for members in alike.values()
    ]


def _handed_out(groups: Iterable[_Group], taken: Iterable[dict[Kind, int]]) -> dict[str, dict[Kind, int]]:
    """Slots by demand; the last member of a group takes what is left, which may be one more than it needs."""
    found: dict[str, dict[Kind, int]] = {}
    for group, slots in zip(groups, taken, strict=True):
        rest = {kind: count for kind, count in slots.items() if count}
        for member in group.members[:-1]:
            mine = found.setdefault(member.name, {})
            needed = int(member.amount)
            for kind, count in rest.items():
                if part := min(needed, count):
                    mine[kind] = part
                    rest[kind] -= part
                    needed -= part
        found[group.members[-1].name] = {kind: count for kind, count in rest.items() if count}
    return found


def _step(uses: Sequence[Use]) -> float:
    """The price that every total is a multiple of; 0 if there is none, as among prices in USD."""
    prices = {use.price for use in uses}
    if all(price == int(price) for price in prices):
        return float(math.gcd(*map(int, prices)))
    return prices.pop() if len(prices) == 1 else 0.0


def numeric() -> Any:
    """The module numpy, which highspy needs too; InputError without it."""
    try:
        import numpy
    except ImportError:
        raise InputError("numpy", "is not installed", "pip install 'gpuform[plan]'") from None
    return numpy


def _highs() -> Any:
    try:
        import highspy
    except ImportError:
        raise InputError("highspy", "is not installed", "pip install 'gpuform[plan]'") from None
    return highspy


def _solve(
    model: _Model, limit_s: float, step: float, gap: float = 0.0, start: Sequence[float] = ()
) -> tuple[list[int], float, bool]:
    """Values of the columns, the bound, and whether the search ended by itself; ``start``: known values."""
    highs, numpy = _highs(), numeric()
    problem = highs.HighsLp()
    problem.num_col_, problem.num_row_ = len(model.costs), len(model.lower)
    problem.col_cost_ = numpy.array(model.costs)
    problem.col_lower_ = numpy.zeros(len(model.costs))
    problem.col_upper_ = numpy.full(len(model.costs), highs.kHighsInf)
    problem.row_lower_, problem.row_upper_ = numpy.array(model.lower), numpy.array(model.upper)
    problem.integrality_ = [highs.HighsVarType.kInteger] * len(model.costs)
    matrix = problem.a_matrix_
    matrix.format_ = highs.MatrixFormat.kColwise
    matrix.start_ = numpy.cumsum([0, *(len(column) for column in model.entries)])
    matrix.index_ = numpy.array([row for column in model.entries for row in column])
    matrix.value_ = numpy.array([value for column in model.entries for value in column.values()])
    solver = highs.Highs()
    solver.silent()
    solver.setOptionValue("time_limit", limit_s)
    # A bound above the best total less one step proves it.
    solver.setOptionValue("mip_abs_gap", step * (1 - TOLERANCE))
    solver.setOptionValue("mip_rel_gap", gap)
    solver.passModel(problem)
    if start:
        known = highs.HighsSolution()
        known.col_value = list(start)
        solver.setSolution(known)
    solver.run()
    info, status = solver.getInfo(), solver.getModelStatus()
    if info.primal_solution_status != highs.SolutionStatus.kSolutionStatusFeasible:
        if status in (highs.HighsModelStatus.kInfeasible, highs.HighsModelStatus.kUnboundedOrInfeasible):
            raise Unsatisfiable
        raise TimeoutError(f"HiGHS found no packing in {limit_s:g} s: {solver.modelStatusToString(status)}")
    bound = info.mip_dual_bound
    if step:
        bound = step * math.ceil(bound / step - TOLERANCE)
    values = [round(value) for value in solver.getSolution().col_value]
    return values, bound, status == highs.HighsModelStatus.kOptimal
