"""GFD's labels; CERN's list is typed here again from the webinar's slides."""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import gfd, keys
from lab.simulator.actions import NodeMeta
from tests.lab.simulator.worlds import CERN, MIG, SEVEN, cut, make_world, mps, sliced

pytestmark = pytest.mark.unit

CERN_T4 = {
    "nvidia.com/cuda.driver-version.full": "550.54.15",
    "nvidia.com/cuda.driver-version.major": "550",
    "nvidia.com/cuda.driver-version.minor": "54",
    "nvidia.com/cuda.driver-version.revision": "15",
    "nvidia.com/cuda.driver.major": "550",
    "nvidia.com/cuda.driver.minor": "54",
    "nvidia.com/cuda.driver.rev": "15",
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "4",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/cuda.runtime.minor": "4",
    "nvidia.com/gfd.timestamp": "1728992460",
    "nvidia.com/gpu.compute.major": "7",
    "nvidia.com/gpu.compute.minor": "5",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.family": "turing",
    "nvidia.com/gpu.machine": "OpenStack-Compute",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "false",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/vgpu.present": "false",
}


def found(**given: Any) -> dict[str, str | None]:
    (action,) = gfd.act(make_world(**given))
    assert isinstance(action, NodeMeta)
    return action.labels


def test_cern_labels_of_a_t4() -> None:
    assert found(driver="550.54.15", annotations={keys.DMI_PRODUCT: "OpenStack Compute"}) == CERN_T4


A100 = "NVIDIA-A100-SXM4-40GB"
TWO_OF_FOUR: dict[str, Any] = {"gpu": "20b0", "count": 4, "annotations": cut(SEVEN, SEVEN)}
# What the labels are, without nvidia.com/; None: the label is missing.
CASES: dict[str, tuple[dict[str, Any], dict[str, str | None]]] = {
    "cern_shared_and_renamed": (
        sliced(4),
        {"gpu.product": "Tesla-T4", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"},
    ),
    "cisco_shared_under_its_name": (
        sliced(4, rename=False),
        {"gpu.product": "Tesla-T4-SHARED", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"},
    ),
    "cisco_mps_capable": (
        mps(3),
        {"mps.capable": "true", "gpu.sharing-strategy": "mps", "mig.strategy": None},
    ),
    "cern_mig_mixed": (
        {"gpu": "20b0", "annotations": cut(CERN)},
        {
            "gpu.product": A100,
            "gpu.replicas": "0",
            "mig.capable": "true",
            "mig-2g.10gb.count": "2",
            "mig-2g.10gb.memory": "9856",
            "mig-2g.10gb.multiprocessors": "28",
            "mig-2g.10gb.product": f"{A100}-MIG-2g.10gb",
            "mig-2g.10gb.replicas": "1",
            "mig-2g.10gb.sharing-strategy": "none",
            "mig-2g.10gb.slices.ci": "2",
            "mig-2g.10gb.slices.gi": "2",
        },
    ),
    "bumble_mig_single": (
        {"gpu": "20f1", "env": "single", "annotations": cut(SEVEN)},
        {"gpu.product": "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb", "gpu.count": "7", "gpu.memory": "4864"},
    ),
    "nvidia_media_slice_has_a_dot": (
        {"gpu": "20f1", "env": "single", "annotations": cut(["1g.5gb+me@0"])},
        {"gpu.product": "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb.me"},
    ),
    "single_with_several_profiles": (
        {"gpu": "20b0", "env": "single", "annotations": cut(CERN)},
        {"gpu.product": f"{A100}-MIG-INVALID", "gpu.count": "0"},
    ),
    "single_with_a_whole_gpu": (
        {**TWO_OF_FOUR, "env": "single"},
        {"gpu.product": f"{A100}-MIG-INVALID", "gpu.count": "0", "gpu.memory": "0"},
    ),
    "mixed_counts_all_four_and_shares_the_whole_ones": (
        {**TWO_OF_FOUR, **sliced(2, rename=False)},
        {
            "gpu.count": "4",
            "gpu.product": f"{A100}-SHARED",
            "gpu.replicas": "2",
            "mig-1g.5gb.count": "14",
            "mig-1g.5gb.sharing-strategy": "none",
        },
    ),
    "shared_slices": (
        {**TWO_OF_FOUR, **sliced(2, MIG, rename=False)},
        {
            "mig-1g.5gb.product": f"{A100}-MIG-1g.5gb-SHARED",
            "mig-1g.5gb.replicas": "2",
            "mig-1g.5gb.sharing-strategy": "time-slicing",
            "gpu.sharing-strategy": "none",
        },
    ),
    "shared_and_renamed_slices": (
        {**TWO_OF_FOUR, **sliced(2, MIG)},
        {"mig-1g.5gb.product": f"{A100}-MIG-1g.5gb", "mig-1g.5gb.replicas": "2"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_labels(case: str) -> None:
    given, expected = CASES[case]
    labels = found(**given)
    assert {name: labels.get(f"nvidia.com/{name}") for name in expected} == expected


def test_labels_of_a_former_layout_go() -> None:
    stale = {f"{MIG}.count": "7", "nvidia.com/mig.config": "all-1g.5gb"}
    labels = found(gpu="20b0", labels=stale, annotations=cut(CERN))
    assert labels[f"{MIG}.count"] is None
    assert "nvidia.com/mig.config" not in labels


def test_same_labels_again_and_a_missing_operand_write_nothing() -> None:
    assert gfd.act(make_world(labels=found())) == []
    for missing in ("gfd", "driver"):
        operands = tuple({"nfd-worker", "driver", "gfd"} - {missing})
        assert gfd.act(make_world(operands=operands)) == []
