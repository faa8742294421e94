"""Where pods are placed: policies on a fast model of nodes and devices.

The model is online: pods come one after another, and none is moved. A pod may go where its cores, its
memory and its devices fit, and goes to such a node with the highest score. Every policy places each pod that
fits somewhere.

A score depends on the pod's shape and on the node alone. So scores are kept per shape, and only those of
nodes that changed since are computed again. Arrays have one row per node, and in two dimensions one column
per device; amounts are thousandths of a GPU, thousandths of a core, MiB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from infra.planner.packing import numeric
from infra.planner.trace import MILLI, NodeSize, Shape

Array = Any
"""numpy.ndarray, which the type checker does not see: numpy is an extra."""


@dataclass(frozen=True)
class Placed:
    """A pod's node and devices, and the amount that it holds of each device."""

    shape: Shape
    node: int
    devices: tuple[int, ...]
    amounts: tuple[int, ...]


class Nodes:
    """Free amounts of all nodes: ``cpu``, ``memory`` by node, ``free`` by node and device (-1: no device)."""

    def __init__(self, sizes: Sequence[NodeSize]) -> None:
        self.np = np = numeric()
        self.sizes = sizes
        width = max((len(size.devices) for size in sizes), default=0) or 1
        self.free = np.full((len(sizes), width), -1, np.int64)
        for row, size in enumerate(sizes):
            self.free[row, : len(size.devices)] = size.devices
        self.capacity = np.maximum(self.free, 0).sum(axis=1)
        self.cpu = np.array([size.cpu_milli for size in sizes], np.int64)
        self.memory = np.array([size.memory_mib for size in sizes], np.int64)
        self.divisible = np.array([size.divisible for size in sizes], bool)
        self.gpu_only = np.array([size.gpu_only for size in sizes], bool)
        kinds = sorted({size.models for size in sizes})
        self.kinds = kinds
        self.kind = np.array([kinds.index(size.models) for size in sizes], np.int64)
        self.changed: list[int] = []
        """Rows in the order of their changes."""

    def take(self, shape: Shape, rows: Array) -> Array:
        """What the pod would hold of each device."""
        free = self.free[rows]
        return self.np.where(self.divisible[rows, None] & (free > 0), shape.milli, free)

    def usable(self, shape: Shape, rows: Array) -> Array:
        """Whether each device can serve the pod; True everywhere for a pod without GPUs."""
        return self.free[rows] >= shape.milli

    def held(self, shape: Shape, rows: Array) -> Array:
        """What the pod would hold of each node's devices together, on the tightest."""
        if shape.gpus != 1 or self.divisible.all():
            return shape.total_milli
        taken = self.np.where(self.usable(shape, rows), self.take(shape, rows), MILLI)
        return taken.min(axis=1)

    def fits(self, shape: Shape, rows: Array) -> Array:
        """Whether each node can hold the pod. A node may have one of several models: all must be accepted."""
        fitting = (self.cpu[rows] >= shape.cpu_milli) & (self.memory[rows] >= shape.memory_mib)
        if shape.gpus:
            fitting &= self.usable(shape, rows).sum(axis=1) >= shape.gpus
            fitting &= self.accepting(shape)[self.kind[rows]]
        else:
            fitting &= ~self.gpu_only[rows]
        return fitting

    def accepting(self, shape: Shape) -> Array:
        """By kind of node: whether the pod accepts its models."""
        return self.np.array(
            [not shape.models or (bool(kind) and set(kind) <= set(shape.models)) for kind in self.kinds]
        )

    def place(self, shape: Shape, node: int, devices: Iterable[int]) -> Placed:
        devices, divisible = tuple(devices), self.sizes[node].divisible
        amounts = tuple(shape.milli if divisible else int(self.free[node, device]) for device in devices)
        placed = Placed(shape, node, devices, amounts)
        self._change(placed, -1)
        return placed

    def remove(self, placed: Placed) -> None:
        self._change(placed, 1)

    def _change(self, placed: Placed, sign: int) -> None:
        node = placed.node
        self.cpu[node] += sign * placed.shape.cpu_milli
        self.memory[node] += sign * placed.shape.memory_mib
        for device, amount in zip(placed.devices, placed.amounts, strict=True):
            self.free[node, device] += sign * amount
        self.changed.append(node)

    def positive(self, rows: Array) -> Array:
        """Free amounts by node and device, 0 where there is no device."""
        return self.np.maximum(self.free[rows], 0)

    def idle(self, rows: Array) -> Array:
        return self.positive(rows).sum(axis=1)


class Policy(Protocol):
    """Scores of nodes for a pod, and which device of the chosen node a pod of one device takes.

    Of nodes with the highest score one is taken by chance (``random_ties``), as kube-scheduler does
    [kubernetes v1.34.10, pkg/scheduler/schedule_one.go, selectHost], or the first, as in FGD's
    evaluation [hkust-adsl/kubernetes-scheduler-simulator 8f3d641, its vendored generic_scheduler.go].
    """

    random_ties: bool

    def score(self, nodes: Nodes, shape: Shape, rows: Array) -> Array: ...

    def device(self, nodes: Nodes, shape: Shape, node: int, rng: Random) -> int: ...


class Randomly:
    """Any node and any device that fits, each with the same chance."""

    random_ties = True

    def score(self, nodes: Nodes, shape: Shape, rows: Array) -> Array:
        return nodes.np.zeros(len(rows))

    def device(self, nodes: Nodes, shape: Shape, node: int, rng: Random) -> int:
        return rng.choice([int(one) for one in _usable(nodes, shape, node)])


class BestFit:
    """Least free cores and GPUs after the pod, each by the largest node, as in FGD's comparison.

    [hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/simulator/plugin/best_fit_score.go: whole points]
    """

    random_ties = False

    def score(self, nodes: Nodes, shape: Shape, rows: Array) -> Array:
        cpu, gpu = nodes.cpu[rows] - shape.cpu_milli, nodes.idle(rows) - nodes.held(shape, rows)
        return nodes.np.floor(100 * (1 - cpu / 256_000 - gpu / 16_000))

    def device(self, nodes: Nodes, shape: Shape, node: int, rng: Random) -> int:
        return _tightest(nodes, shape, node)


@dataclass(frozen=True)
class Allocated:
    """kube-scheduler's NodeResourcesFit with the GPU resource alone: LeastAllocated, MostAllocated.

    Whole points of 100 times the free, or the requested, part; none for a pod without GPUs [kubernetes
    v1.34.10, pkg/scheduler/framework/plugins/noderesources: least_allocated.go, most_allocated.go,
    resource_allocation.go]. The scheduler chooses no device; the tightest is taken here.
    """

    most: bool
    random_ties = True

    def score(self, nodes: Nodes, shape: Shape, rows: Array) -> Array:
        if not shape.gpus:
            return nodes.np.zeros(len(rows))
        capacity = nodes.np.maximum(nodes.capacity[rows], 1)
        free = nodes.np.maximum(nodes.idle(rows) - nodes.held(shape, rows), 0)
        return (capacity - free if self.most else free) * 100 // capacity

    def device(self, nodes: Nodes, shape: Shape, node: int, rng: Random) -> int:
        return _tightest(nodes, shape, node)


def _usable(nodes: Nodes, shape: Shape, node: int) -> Array:
    return nodes.np.flatnonzero(nodes.usable(shape, slice(node, node + 1))[0])


def _tightest(nodes: Nodes, shape: Shape, node: int) -> int:
    return int(min(_usable(nodes, shape, node), key=lambda device: nodes.free[node, device]))


class Fragmentation:
    """How much idle GPU the usual pods cannot use, by FGD's definition, looked up in two tables.

    For a pod of the mix, all idle GPU of a node that cannot hold it is a fragment; else the idle parts of the
    devices that are too small for it are. The mean over the mix is the node's fragmentation [Weng et al.,
    USENIX ATC 2023, section 3; pkg/utils/frag.go, NodeGpuShareFragAmount]. A pod of one device uses each
    device by itself, and one of several uses whole devices. So what the mix can use is a sum over devices
    (`single`, by kind of node, step of free cores and free amount) and a part by the number of whole
    devices (`several`).

    The mix is the most frequent shapes that together are the part ``popular`` of all, as in FGD's evaluation.
    """

    def __init__(self, nodes: Nodes, shapes: Iterable[Shape], popular: float = 0.95) -> None:
        np = nodes.np
        self.mix = _most_popular(shapes, popular)
        self.steps = np.array(sorted({shape.cpu_milli for shape in self.mix if shape.gpus}), np.int64)
        size = (len(nodes.kinds), len(self.steps) + 1)
        self.single = np.zeros((*size, MILLI + 1))
        self.several = np.zeros((*size, nodes.free.shape[1] + 1))
        for shape, part in self.mix.items():
            place = nodes.accepting(shape), slice(int(self.step(shape.cpu_milli)), None)
            if shape.gpus == 1:
                self.single[(*place, slice(shape.milli, None))] += part
            elif shape.gpus:
                self.several[(*place, slice(shape.gpus, None))] += part
        self.single *= np.arange(MILLI + 1)
        self.several *= MILLI * np.arange(nodes.free.shape[1] + 1)

    def count_sums(self, nodes: Nodes, weight: float = 6.0, rare: float = 0.02) -> None:
        """Count also how much of a device several pods can fill together, ``weight`` times.

        A share of a GPU with less than ``rare`` of the mix is not relied on: too few come. The two figures
        are ours, found on openb's lists.
        """
        np = nodes.np
        for kind in range(len(nodes.kinds)):
            for step in range(1, len(self.steps) + 1):
                frequency = dict[int, float]()
                for shape, part in self.mix.items():
                    if (
                        shape.gpus == 1
                        and self.step(shape.cpu_milli) <= step
                        and nodes.accepting(shape)[kind]
                    ):
                        frequency[shape.milli] = frequency.get(shape.milli, 0.0) + part
                sizes = [milli for milli, part in frequency.items() if part >= rare]
                self.single[kind, step] += weight * np.array(_largest_sums(sizes))
        self.single /= 1 + weight
        self.several /= 1 + weight

    def step(self, cpu: Array) -> Array:
        return self.steps.searchsorted(cpu, side="right")

    def amount(self, nodes: Nodes, rows: Array) -> Array:
        """Thousandths of a GPU that are fragments, by node."""
        free = nodes.positive(rows)
        kind, step = nodes.kind[rows], self.step(nodes.cpu[rows])
        used = self.single[kind[:, None], step[:, None], free].sum(axis=1)
        return free.sum(axis=1) - used - self.several[kind, step, (free == MILLI).sum(axis=1)]

    def after(self, nodes: Nodes, shape: Shape, rows: Array) -> Array:
        """By node and device: the fragments once the device serves the pod; inf where it cannot.

        One column for pods of several or no devices. What a pod holds of a slot and does not request counts
        as a fragment, too.
        """
        np, free = nodes.np, nodes.positive(rows)
        kind, step = nodes.kind[rows], self.step(nodes.cpu[rows] - shape.cpu_milli)
        each = self.single[kind[:, None], step[:, None], free]
        used, whole, total = each.sum(axis=1), (free == MILLI).sum(axis=1), free.sum(axis=1)
        if shape.gpus != 1:
            whole, total = whole - shape.gpus, total - shape.total_milli
            used = used - shape.gpus * self.single[kind, step, MILLI]
            return (total - used - self.several[kind, step, whole])[:, None]
        usable = nodes.usable(shape, rows)
        taken = nodes.take(shape, rows)
        left = np.where(usable, free - taken, 0)
        changed = self.single[kind[:, None], step[:, None], left]
        several = self.several[kind[:, None], step[:, None], whole[:, None] - (free == MILLI)]
        total = total[:, None] - free + left + taken - shape.milli
        result = total - (used[:, None] - each + changed) - several
        return np.where(usable, result, np.inf)


def _largest_sums(sizes: Iterable[int]) -> list[int]:
    """By amount from 0 to 1000: the largest sum of any number of these sizes that is not above it."""
    reached = 1  # bit n: n is a sum
    for size in sizes:
        for _ in range(MILLI // size):
            reached |= reached << size
    sums, largest = [], 0
    for amount in range(MILLI + 1):
        largest = amount if reached >> amount & 1 else largest
        sums.append(largest)
    return sums


def _most_popular(shapes: Iterable[Shape], part: float) -> dict[Shape, float]:
    """The most frequent shapes that together are that part of all, with their frequency among these."""
    counts = Counter(Shape(s.gpus, s.milli, s.cpu_milli, 0, s.models) for s in shapes)
    total, found = counts.total(), dict[Shape, float]()
    for shape, count in sorted(counts.items(), key=lambda item: (-item[1], str(item[0]))):
        if sum(found.values()) >= part * total:
            break
        found[shape] = count
    return {shape: count / sum(found.values()) for shape, count in found.items()}


@dataclass
class Fgd:
    """Fragmentation gradient descent: the node and device at which fragments grow least.

    [hkust-adsl/kubernetes-scheduler-simulator 8f3d641, pkg/simulator/plugin/fgd_score.go: whole points of 100
    times the logistic function of the decrease in GPUs]
    """

    fragmentation: Fragmentation
    random_ties = False

    def points(self, nodes: Nodes, shape: Shape, rows: Array) -> Array:
        grown = self.fragmentation.after(nodes, shape, rows) - self.fragmentation.amount(nodes, rows)[:, None]
        return nodes.np.floor(100 / (1 + nodes.np.exp(grown / MILLI)))

    def score(self, nodes: Nodes, shape: Shape, rows: Array) -> Array:
        return self.points(nodes, shape, rows).max(axis=1)

    def device(self, nodes: Nodes, shape: Shape, node: int, rng: Random) -> int:
        return int(self.points(nodes, shape, nodes.np.array([node]))[0].argmax())


@dataclass
class Placer:
    """Places pods one by one on ``nodes``; ``seed`` decides ties."""

    nodes: Nodes
    policy: Policy
    seed: int = 0
    _kept: dict[Shape, tuple[Array, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._rng = Random(self.seed)  # noqa: S311

    def place(self, shape: Shape) -> Placed | None:
        """None if no node can hold the pod."""
        np, scores = self.nodes.np, self._scores(shape)
        best = scores.max()
        if best == -np.inf:
            return None
        ties = np.flatnonzero(scores == best)
        node = int(ties[self._rng.randrange(len(ties)) if self.policy.random_ties else 0])
        if shape.gpus == 1:
            return self.nodes.place(shape, node, [self.policy.device(self.nodes, shape, node, self._rng)])
        return self.nodes.place(shape, node, map(int, _usable(self.nodes, shape, node)[: shape.gpus]))

    def _scores(self, shape: Shape) -> Array:
        np, nodes = self.nodes.np, self.nodes
        if shape in self._kept:
            scores, known = self._kept[shape]
            rows = np.array([*{*nodes.changed[known:]}], np.int64)
        else:
            scores, rows = np.full(len(nodes.cpu), -np.inf), np.arange(len(nodes.cpu))
        if len(rows):
            fitting = nodes.fits(shape, rows)
            scores[rows] = -np.inf
            if fitting.any():
                rows = rows[fitting]
                scores[rows] = self.policy.score(nodes, shape, rows)
        self._kept[shape] = scores, len(nodes.changed)
        return scores


def _lookahead(nodes: Nodes, shapes: Sequence[Shape]) -> Policy:
    fragmentation = Fragmentation(nodes, shapes, popular=1.0)
    if nodes.divisible.all():  # else a pod takes all of a device, whatever it leaves unused
        fragmentation.count_sums(nodes)
    return Fgd(fragmentation)


POLICIES: Mapping[str, Callable[[Nodes, Sequence[Shape]], Policy]] = {
    "random": lambda nodes, shapes: Randomly(),
    "least-allocated": lambda nodes, shapes: Allocated(most=False),
    "most-allocated": lambda nodes, shapes: Allocated(most=True),
    "best-fit": lambda nodes, shapes: BestFit(),
    "fgd": lambda nodes, shapes: Fgd(Fragmentation(nodes, shapes)),
    "lookahead": _lookahead,
}
"""Policies by name, from the nodes and the shapes of usual pods. ``lookahead`` is ours: FGD that also counts
what several pods can fill together."""
