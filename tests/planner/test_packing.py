"""Packings: the published plans, brute force, first-fit decreasing, and the bound."""

from __future__ import annotations

import csv
import itertools
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.model.gpu.mig import A30, A100_40, A100_80, Geometry
from infra.planner.packing import Demand, Packing, Unsatisfiable, Use, largest_layouts, pack

pytestmark = pytest.mark.unit

PARVAGPU = Path(__file__).parents[3] / "shared" / "traces" / "parvagpu"
SIZES = {"1": "1g.10gb", "2": "2g.20gb", "3": "3g.40gb", "4": "4g.40gb", "7": "7g.80gb"}
PUBLISHED = {"S1": 2, "S2": 3, "S3": 5, "S4": 7}
"""GPUs of ParvaGPU's own plans (FACTS, section 6)."""


def uses(geometry: Geometry) -> list[Use]:
    return [Use(str(layout), layout) for layout in largest_layouts(geometry)]


def held(packing: Packing, demands: list[Demand], offers: list[Use]) -> bool:
    """Whether every demand has its amount, and no slot is taken that no GPU offers."""
    slots: Counter[str] = Counter()
    for use in offers:
        slots.update({str(kind): count * packing.gpus.get(use.name, 0) for kind, count in use.slots.items()})
    for demand in demands:
        taken = packing.taken[demand.name]
        slots.subtract({str(kind): count for kind, count in taken.items()})
        if sum(demand.gives[kind] * count for kind, count in taken.items()) < demand.amount - 1e-6:
            return False
    return min(slots.values(), default=0) >= 0


def services(scenario: str) -> Iterator[Demand]:
    """Rates, and the throughput of each size at its best batch and number of processes within the limit.

    ParvaGPU takes 0.9 of half of the latency target, as requests wait for their batch.
    """
    row = list(PUBLISHED).index(scenario)
    rates, targets = (
        list(csv.reader((PARVAGPU / name).open()))[row]
        for name in ("req_rate_S1-S4.csv", "slo_latency_ms_S1-S4.csv")
    )
    files = sorted(path for path in PARVAGPU.glob("*.csv") if "_S1-S4" not in path.name)
    for path, rate, target in zip(files, rates, targets, strict=True):
        if rate == "N/A":
            continue
        best: dict[str, float] = {}
        for measured in csv.DictReader(path.open()):
            size, throughput = SIZES[measured["Mig instance"]], float(measured["Throughput"])
            if float(measured["Latency"]) * 1000 <= 0.9 * float(target) / 2:
                best[size] = max(best.get(size, 0.0), throughput * int(measured["Workload Number"]))
        yield Demand(path.stem, float(rate), {size: value for size, value in best.items() if value})


@pytest.mark.skipif(not PARVAGPU.exists(), reason="ParvaGPU's measurements are not in the project")
@pytest.mark.parametrize("scenario", PUBLISHED)
def test_parvagpus_scenarios_take_the_proved_fewest(scenario: str) -> None:
    offers, demands = uses(A100_80), list(services(scenario))
    packing = pack(offers, demands)
    assert (packing.price, packing.bound, packing.complete) == (
        PUBLISHED[scenario],
        PUBLISHED[scenario],
        True,
    )
    assert held(packing, demands, offers)


@pytest.mark.parametrize(("geometry", "count"), [(A30, 9), (A100_40, 77)])
def test_every_layout_is_part_of_a_largest_one(geometry: Geometry, count: int) -> None:
    """Of the A100 there are 77 (FACTS, section 3)."""
    plain = [one for one in geometry.profiles if not one.media]
    largest = largest_layouts(geometry)
    found = [
        layout
        for counts in itertools.product(*(range(geometry.max_slices(one.name) + 1) for one in plain))
        if any(counts)
        and geometry.fits(layout := {one.name: n for one, n in zip(plain, counts, strict=True) if n})
    ]
    assert len(found) == count
    for layout in found:
        assert any(all(large.get(name, 0) >= n for name, n in layout.items()) for large in largest), layout
    for layout in largest:
        assert geometry.fits(layout)


KINDS = ("1g.6gb", "2g.12gb", "4g.24gb")
NEEDS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 3)), min_size=1, max_size=4)


@given(NEEDS)
def test_brute_force_finds_no_fewer(needs: list[tuple[str, int]]) -> None:
    demands = [at_least(str(index), kind, count) for index, (kind, count) in enumerate(needs)]
    offers = uses(A30)
    packing = pack(offers, demands)
    assert packing.price == packing.bound == fewest(needs)
    assert held(packing, demands, offers)


def at_least(name: str, kind: str, replicas: int) -> Demand:
    """Replicas for slots of this kind or a larger one."""
    return Demand(name, replicas, dict.fromkeys(KINDS[KINDS.index(kind) :], 1))


def fewest(needs: list[tuple[str, int]]) -> int:
    """GPUs, by trying every number of each layout."""
    wanted = Counter[str]()
    for kind, count in needs:
        wanted[kind] += count
    layouts = largest_layouts(A30)
    for total in itertools.count(1):
        for chosen in itertools.combinations_with_replacement(layouts, total):
            have = Counter[str]()
            for layout in chosen:
                have.update(layout)
            larger = [sum(have[kind] - wanted[kind] for kind in KINDS[index:]) for index in range(len(KINDS))]
            if min(larger) >= 0:
                return total
    raise AssertionError


@given(st.lists(st.tuples(st.sampled_from(list(SIZES.values())), st.integers(1, 9)), min_size=1, max_size=30))
def test_first_fit_decreasing_is_never_better(needs: list[tuple[str, int]]) -> None:
    names = list(SIZES.values())
    demands = [
        Demand(str(index), count, dict.fromkeys(names[names.index(kind) :], 1))
        for index, (kind, count) in enumerate(needs)
    ]
    packing = pack(uses(A100_80), demands)
    assert packing.price <= first_fit_decreasing(needs)
    assert packing.gap == 0


def first_fit_decreasing(needs: list[tuple[str, int]]) -> int:
    sizes = {profile.name: profile.memory for profile in A100_80.profiles}
    pending = sorted((kind for kind, count in needs for _ in range(count)), key=lambda kind: -sizes[kind])
    gpus: list[Counter[str]] = []
    for kind in pending:
        for gpu in gpus:
            if A100_80.fits({**gpu, kind: gpu[kind] + 1}):
                gpu[kind] += 1
                break
        else:
            gpus.append(Counter([kind]))
    return len(gpus)


def test_of_gpus_at_several_prices_the_cheapest_set_is_chosen() -> None:
    offers = [Use("small", {"slot": 1}, 1.0), Use("large", {"slot": 4}, 3.0)]
    packing = pack(offers, [Demand("w", 5, {"slot": 1})])
    assert (packing.gpus, packing.price) == ({"small": 1, "large": 1}, 4.0)
    assert packing.gap == pytest.approx(0, abs=1e-6)


def test_a_demand_that_no_gpu_holds_is_named() -> None:
    with pytest.raises(Unsatisfiable, match=r"^huge$"):
        pack(uses(A30), [Demand("huge", 1, {"7g.80gb": 1})])


def test_a_search_that_is_cut_off_gives_the_best_found_and_its_bound() -> None:
    offers, demands = uses(A100_80), list(random_services(1000))
    started = time.monotonic()
    packing = pack(offers, demands, limit_s=1.0)
    assert time.monotonic() - started < 60  # slower machines look longer at the last node
    assert held(packing, demands, offers)
    assert packing.bound <= packing.price < math.inf


def random_services(count: int) -> Iterator[Demand]:
    """Of a fixed seed: rates, and throughputs that grow less than the size of a slice."""
    import random

    dice = random.Random(1)
    for index in range(count):
        base, smallest = dice.uniform(20, 300), dice.choice((1, 1, 1, 2, 3))
        gives: Mapping[str, float] = {
            name: base * int(size) ** dice.uniform(0.6, 1)
            for size, name in SIZES.items()
            if int(size) >= smallest
        }
        yield Demand(str(index), dice.uniform(0.1, 1.2) * base, gives)


@pytest.mark.parametrize(("alike", "gpus"), [(False, 1), (True, 2)])
def test_slots_of_a_deployments_pods_are_of_one_kind(alike: bool, gpus: int) -> None:
    offers = [Use("cut", {"a": 1, "b": 1})]
    demand = Demand("d", 2, {"a": 1, "b": 1}, alike=alike)
    packing = pack(offers, [demand])
    assert (packing.price, packing.bound) == (gpus, gpus)
    assert len(packing.taken["d"]) == (1 if alike else 2)
    assert held(packing, [demand], offers)


def test_room_beside_the_gpu_is_counted() -> None:
    """Four slots on a GPU, and cores for three."""
    offers = [Use("shared", {"s": 4}, room={"cpu": 3.5})]
    demand = Demand("d", 4, {"s": 1}, needs={"s": {"cpu": 1.0}})
    assert pack(offers, [demand]).gpus == {"shared": 2}


def test_a_stock_of_machines_is_not_exceeded() -> None:
    offers = [Use("own", {"s": 2}, price=1.0, stock="own"), Use("bought", {"s": 1}, price=5.0)]
    packing = pack(offers, [Demand("d", 5, {"s": 1})], stock={"own": 2})
    assert packing.gpus == {"own": 2, "bought": 1}
    with pytest.raises(Unsatisfiable):
        pack(offers[:1], [Demand("d", 5, {"s": 1})], stock={"own": 2})


def test_among_the_cheapest_the_fewest_uses_and_then_the_least_cost_are_taken() -> None:
    """Three GPUs are needed in any case, and can all be used alike."""
    offers = [Use("x", {"p": 2, "q": 2}), Use("y", {"p": 2}), Use("z", {"q": 2})]
    demands = [Demand("p", 4, {"p": 1}), Demand("q", 6, {"q": 1})]
    packing = pack(offers, demands, simplify=True)
    assert packing.gpus == {"x": 3}
    dearer = Demand("r", 2, {"p": 1, "q": 1}, costs={"p": 0.3, "q": 0.1})
    assert pack(offers, [dearer], simplify=True).taken["r"] == {"q": 2}
