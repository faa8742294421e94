"""Two tables, typed independently: the planner's GPU data and the simulator's."""

from __future__ import annotations

import pytest

from infra.model import gpu as catalogue
from lab.simulator.hardware import GPUS, device_filter

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", catalogue.GPUS)
def test_planner_and_simulator_agree(name: str) -> None:
    planned = catalogue.GPUS[name]
    vendor, _, device = planned.pci.partition(":")
    assert vendor == "10de"
    ours = GPUS[device]
    assert ours.product.replace(" ", "-") == planned.product
    assert (ours.memory_mib, ours.compute, ours.family) == (
        planned.memory_mib,
        planned.compute,
        planned.family,
    )
    assert ours.last_branch == planned.driver.last
    assert device_filter(device) == planned.device_filter
    profiles = ours.mig.profiles if ours.mig else {}
    theirs = planned.geometry.profiles if planned.geometry else ()
    assert {n: (p.compute, p.memory_slices, p.starts, p.media) for n, p in profiles.items()} == {
        p.name: (p.compute, p.memory, p.starts, p.media) for p in theirs
    }


def test_family_follows_from_the_compute_capability() -> None:
    families = {
        (7, 0): "volta",
        (7, 5): "turing",
        (8, 0): "ampere",
        (8, 6): "ampere",
        (8, 9): "ada-lovelace",
        (9, 0): "hopper",
        (10, 0): "blackwell",
        (10, 3): "blackwell",
        (12, 0): "blackwell",
    }
    assert {gpu.compute: gpu.family for gpu in GPUS.values()} == families
