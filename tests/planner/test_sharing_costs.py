"""The cost model of sharing against CERN's measurements, and which parts suit which demands."""

from __future__ import annotations

import pytest

from infra.model.gpu.models import GPUS
from infra.planner import sharing_costs
from infra.planner.need import Class, Need
from infra.planner.sharing_costs import Part

pytestmark = pytest.mark.unit

A100, T4 = GPUS["A100-PCIE-40GB"], GPUS["T4"]
WHOLE = (26.365, 51.135, 76.374)
"""Seconds for 5, 10 and 15 million particles on the whole GPU (FACTS, section 2)."""
SLICES = {
    "7g.40gb": (28.732, 55.930, 83.184),
    "3g.20gb": (62.268, 122.864, 183.688),
    "2g.10gb": (92.394, 183.01, 273.7),
    "1g.5gb": (182.32, 362.10, 542.3),
}
ALONE = (77.12, 99.91, 152.61)
"""Seconds for 15, 20 and 30 million particles alone, and below for each of n that take turns."""
TURNS = {2: (212.71, 276.23, 423.08), 4: (421.55, 546.19, 838.55), 8: (838.22, 1087.99, 1672.95)}


def mig(profile: str) -> Part:
    assert A100.geometry is not None
    found = A100.geometry.profile(profile)
    assert found is not None
    return sharing_costs.mig_slice(A100, found)


@pytest.mark.parametrize("profile", SLICES)
def test_a_slices_throughput_is_cerns_within_two_percent(profile: str) -> None:
    for base, measured in zip(WHOLE, SLICES[profile], strict=True):
        assert base / mig(profile).compute == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize("replicas", TURNS)
def test_time_slicings_loss_is_cerns_within_two_percent(replicas: int) -> None:
    for base, measured in zip(ALONE, TURNS[replicas], strict=True):
        assert base / sharing_costs.time_slice(A100, replicas).compute == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("workload_class", "refused"),
    [("latency", True), ("performance", True), ("interactive", False), ("low_priority", False)],
)
def test_only_interactive_and_low_priority_pods_take_turns(workload_class: Class, refused: bool) -> None:
    need = Need("a", memory_mib=1024, workload_class=workload_class)
    assert bool(sharing_costs.refusal(need, T4, sharing_costs.time_slice(T4, 4))) == refused
    assert not sharing_costs.refusal(need, T4, sharing_costs.mps_client(T4, 4))


@pytest.mark.parametrize(
    ("need", "part", "reason"),
    [
        (Need("a", memory_mib=10240), mig("2g.10gb"), "9.6 GiB of GPU memory, and it needs 10.0 GiB"),
        (Need("a", compute=0.4), mig("2g.10gb"), "28% of a GPU's throughput, and it needs 40%"),
        (
            Need("a", unbounded=True, workload_class="interactive"),
            sharing_costs.time_slice(A100, 2),
            "it takes all the memory that it gets, and time-slicing limits none",
        ),
        (Need("a", count=2), mig("3g.20gb"), "a pod needs 2 whole GPUs"),
        (Need("a", models=frozenset({"T4"})), mig("3g.20gb"), "A100-PCIE-40GB is not one of its models"),
        (
            Need("a", rate=1.0, measured={"3g.20gb": 9.0}),
            mig("2g.10gb"),
            "no measurement of it keeps the latency",
        ),
    ],
)
def test_a_part_that_does_not_suit_is_refused_with_the_reason(need: Need, part: Part, reason: str) -> None:
    assert sharing_costs.refusal(need, A100, part) == reason


def test_the_last_part_that_suits_is_offered() -> None:
    """Each number of shares is the largest that the demand allows: one more would be refused."""
    need = Need("a", memory_mib=5000, compute=0.1, workload_class="low_priority")
    for part in sharing_costs.parts(A100, need):
        if part.how in ("mps", "time_slicing"):
            make = sharing_costs.mps_client if part.how == "mps" else sharing_costs.time_slice
            assert not sharing_costs.refusal(need, A100, part)
            assert sharing_costs.refusal(need, A100, make(A100, part.replicas + 1))
