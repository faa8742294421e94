"""Placement policies: published scores, fragments by their definition, and what no policy may do."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from bench.packing_trace import PUBLISHED, allocated
from infra.model.base.errors import InputError
from infra.planner.placement import (
    POLICIES,
    Allocated,
    BestFit,
    Fgd,
    Fragmentation,
    Nodes,
    Placed,
    Placer,
)
from infra.planner.trace import NodeSize, Shape

pytestmark = pytest.mark.unit

OPENB = Path(__file__).parents[3] / "shared" / "traces" / "openb"
WHOLE = (1000,) * 4
MIX = [
    *[Shape(1, milli, cpu, 1024) for milli in (110, 320, 470, 810) for cpu in (2000, 8000)],
    *[Shape(1, 1000, 12000, 1024), Shape(1, 1000, 4000, 1024, ("A100",)), Shape(0, 0, 8000, 4096)],
    *[Shape(2, 1000, 16000, 1024), Shape(4, 1000, 30000, 1024, ("A100", "T4"))],
]


def node(*devices: int, cpu: int = 64000, model: str = "A100", **more: Any) -> NodeSize:
    return NodeSize("n", cpu, 3000 * (len(devices) or 8), devices, (model,) if devices else (), **more)


def cluster() -> list[NodeSize]:
    divisible = [node(*[1000] * count, cpu=12000 * count, divisible=True) for count in (1, 2, 4, 8)]
    slots = [node(*[250] * 8, model="T4"), node(500, 500, 1000), node(*WHOLE, model="T4", gpu_only=True)]
    return [*divisible * 2, *slots, node(cpu=48000)]


def scores(policy: Any, sizes: Sequence[NodeSize], shape: Shape) -> list[float]:
    nodes = Nodes(sizes)
    return [float(score) for score in policy.score(nodes, shape, nodes.np.arange(len(sizes)))]


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_places_what_fits_within_what_nodes_have(name: str) -> None:
    rng, nodes = Random(7), Nodes(cluster())
    before = nodes.free.copy(), nodes.cpu.copy(), nodes.memory.copy()
    placer, every = Placer(nodes, POLICIES[name](nodes, MIX)), nodes.np.arange(len(nodes.sizes))
    running: list[Placed] = []
    refused = 0
    for _ in range(600):
        if running and rng.random() < 0.3:
            nodes.remove(running.pop(rng.randrange(len(running))))
        shape = rng.choice(MIX)
        fits = nodes.fits(shape, every)
        placed = placer.place(shape)
        assert (placed is not None) == fits.any()
        if placed is None:
            refused += 1
            continue
        assert fits[placed.node]
        assert len({*placed.devices}) == shape.gpus == len(placed.amounts)
        size = nodes.sizes[placed.node]
        assert not shape.models or {*size.models} <= {*shape.models}
        for device, amount in zip(placed.devices, placed.amounts, strict=True):
            assert amount == shape.milli if size.divisible else amount == size.devices[device] >= shape.milli
        running.append(placed)
        assert (nodes.cpu >= 0).all()
        assert (nodes.memory >= 0).all()
        assert (nodes.free[before[0] >= 0] >= 0).all()
    assert refused > 20
    for placed in running:
        nodes.remove(placed)
    for then, now in zip(before, (nodes.free, nodes.cpu, nodes.memory), strict=True):
        assert (then == now).all()


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "random"])
def test_kept_scores_are_those_of_the_present_nodes(name: str) -> None:
    nodes, rng = Nodes(cluster()), Random(3)
    policy, every = POLICIES[name](nodes, MIX), nodes.np.arange(len(nodes.sizes))
    placer = Placer(nodes, policy)
    for _ in range(80):
        shape = rng.choice(MIX)
        fits = nodes.fits(shape, every)
        fresh = nodes.np.where(fits, -1.0, -nodes.np.inf)
        fresh[fits] = policy.score(nodes, shape, every[fits])
        placed = placer.place(shape)
        assert placed is None or fresh[placed.node] == fresh.max()


def test_kube_schedulers_scores_are_whole_parts_of_100() -> None:
    sizes, shape = [node(*WHOLE), node(*WHOLE[:3]), node(1000)], Shape(1, 1000, 1000, 1)
    assert scores(Allocated(most=True), sizes, shape) == [25, 33, 100]
    assert scores(Allocated(most=False), sizes, shape) == [75, 66, 0]
    assert scores(Allocated(most=True), sizes, Shape(0, 0, 1000, 1)) == [0, 0, 0]


def test_best_fit_leaves_the_fewest_cores_and_gpus() -> None:
    sizes = [node(*WHOLE, cpu=64000), node(*WHOLE[:2], cpu=64000), node(*WHOLE[:2], cpu=32000)]
    assert scores(BestFit(), sizes, Shape(1, 1000, 16000, 1)) == [62, 75, 87]


def fragments(size: NodeSize, cpu: int, free: Sequence[int], mix: dict[Shape, float]) -> float:
    """FGD's definition, word by word."""
    total = 0.0
    for shape, part in mix.items():
        accepted = not shape.models or size.models[0] in shape.models
        enough = sum(one >= shape.milli for one in free) >= shape.gpus
        if not (shape.gpus and accepted and enough and cpu >= shape.cpu_milli):
            total += part * sum(free)
        else:
            total += part * sum(one for one in free if one < shape.milli)
    return total


def test_the_tables_give_the_fragments_of_the_definition_before_and_after_a_pod() -> None:
    sizes, rng = [one for one in cluster() if one.divisible], Random(5)
    nodes = Nodes(sizes)
    usual, compared = Fragmentation(nodes, MIX, popular=1.0), 0
    assert len(usual.mix) == len(MIX)
    for _ in range(300):
        shape, row = rng.choice(MIX), nodes.np.array([rng.randrange(len(sizes))])
        if not nodes.fits(shape, row)[0]:
            continue
        at = int(row[0])
        devices = [int(one) for one in nodes.np.flatnonzero(nodes.usable(shape, row)[0])]
        rng.shuffle(devices)
        expected = usual.after(nodes, shape, row)[0][devices[0] if shape.gpus == 1 else 0]
        nodes.place(shape, at, devices[: shape.gpus])
        free = [int(one) for one in nodes.free[at] if one >= 0]
        real = fragments(sizes[at], int(nodes.cpu[at]), free, usual.mix)
        assert expected == pytest.approx(real)
        assert usual.amount(nodes, row)[0] == pytest.approx(real)
        compared += 1
    assert compared > 40


def test_the_usual_pods_are_the_most_frequent_without_the_rest() -> None:
    common, rare = Shape(1, 500, 1000, 7), Shape(1, 1000, 1000, 7)
    usual = Fragmentation(Nodes(cluster()), [common] * 96 + [rare] * 4)
    assert usual.mix == {Shape(1, 500, 1000, 0): 1.0}


def test_fgd_fills_the_device_that_the_usual_pods_cannot_use() -> None:
    nodes = Nodes([node(*WHOLE, divisible=True)])
    policy = Fgd(Fragmentation(nodes, [Shape(1, 800, 1000, 1)] * 9 + [Shape(1, 200, 1000, 1)]))
    nodes.place(Shape(1, 800, 1000, 1), 0, [2])
    assert policy.device(nodes, Shape(1, 200, 1000, 1), 0, Random(0)) == 2


def test_lookahead_knows_what_several_pods_fill_together_and_fgd_does_not() -> None:
    """In the hole of 540, which fits one of 540, 460 leave 80 unused; that of 930 holds two of 460."""
    shapes, made = [Shape(1, milli, 1000, 1) for milli in (460, 540)], {}
    for name in ("fgd", "lookahead"):
        nodes = Nodes([node(1000, 1000, divisible=True)])
        nodes.place(Shape(1, 460, 1000, 1), 0, [0])
        nodes.place(Shape(1, 70, 1000, 1), 0, [1])
        made[name] = POLICIES[name](nodes, shapes).device(nodes, shapes[0], 0, Random(0))
    assert made == {"fgd": 0, "lookahead": 1}


def test_the_unused_part_of_a_slot_is_a_fragment() -> None:
    nodes, shape = Nodes([node(1000, 500)]), Shape(1, 470, 1000, 1)
    assert POLICIES["fgd"](nodes, [shape]).device(nodes, shape, 0, Random(0)) == 1


@pytest.mark.parametrize(("name", "nodes"), [("fgd", {0}), ("best-fit", {0}), ("most-allocated", {0, 1, 2})])
def test_ties_go_to_the_first_node_or_to_any(name: str, nodes: set[int]) -> None:
    chosen = set()
    for seed in range(20):
        alike = Nodes([node(*WHOLE)] * 3)
        placed = Placer(alike, POLICIES[name](alike, MIX), seed).place(Shape(1, 1000, 1, 1))
        chosen.add(placed.node if placed else -1)
    assert chosen == nodes


def test_a_pod_takes_a_whole_slot_and_a_whole_gpu_is_no_share() -> None:
    nodes = Nodes([node(250, 250), node(1000)])
    placer = Placer(nodes, POLICIES["fgd"](nodes, MIX))
    small, whole = Shape(1, 100, 1, 1), Shape(1, 1000, 1, 1)
    first = placer.place(small)
    assert first is not None
    assert (first.node, first.amounts) == (0, (250,))
    second, third = placer.place(whole), placer.place(whole)
    assert second is not None
    assert (second.node, third) == (1, None)


def test_without_numpy_the_remedy_is_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name == "numpy":
            raise ImportError
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"numpy: is not installed; pip install 'gpuform\[plan\]'"):
        Nodes(cluster())


@pytest.mark.nightly
@pytest.mark.skipif(not OPENB.is_dir(), reason="openb's lists are not on this machine")
@pytest.mark.parametrize("name", PUBLISHED)
def test_on_openb_the_model_meets_the_published_means_and_lookahead_is_above_them(name: str) -> None:
    for policy, published in PUBLISHED[name].items():
        assert allocated(OPENB, name, policy, 42) == pytest.approx(published, abs=1.2)
    assert allocated(OPENB, name, "lookahead", 42) > PUBLISHED[name]["fgd"]
