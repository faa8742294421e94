"""GFD's labels; CERN's list is typed here again from the webinar's slides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lab.simulator import gfd, keys
from lab.simulator.actions import NodeMeta

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
OPENSTACK = {keys.DMI_PRODUCT: "OpenStack Compute"}


def found(world: Any) -> dict[str, str | None]:
    (action,) = gfd.act(world)
    assert isinstance(action, NodeMeta)
    return action.labels


def test_cern_labels_of_a_t4(make_world: Any) -> None:
    assert found(make_world(driver="550.54.15", annotations=OPENSTACK)) == CERN_T4


def time_sliced(rename: bool) -> dict[str, Any]:
    entry = {"name": "nvidia.com/gpu", "replicas": 4, "rename": "nvidia.com/gpu.shared" if rename else ""}
    return {"timeSlicing": {"resources": [entry]}}


@pytest.mark.parametrize(("rename", "product"), [(True, "Tesla-T4"), (False, "Tesla-T4-SHARED")])
def test_cern_and_cisco_product_of_a_shared_gpu(make_world: Any, rename: bool, product: str) -> None:
    labels = found(make_world(sharing=time_sliced(rename), strategy="time-slicing"))
    assert labels["nvidia.com/gpu.product"] == product
    assert labels["nvidia.com/gpu.replicas"] == "4"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "time-slicing"


def test_cisco_mps_capable(make_world: Any) -> None:
    mps = {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 3}]}}
    labels = found(make_world(sharing=mps, strategy="mps", env="none"))
    assert labels["nvidia.com/mps.capable"] == "true"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "mps"
    assert "nvidia.com/mig.strategy" not in labels


CUT = {keys.MIG_LAYOUT: json.dumps({"0": ["2g.10gb@0", "2g.10gb@2", "3g.20gb@4"]})}


def test_cern_mig_mixed_labels(make_world: Any) -> None:
    labels = found(make_world(gpu="20b0", annotations=CUT))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB"
    assert labels["nvidia.com/gpu.replicas"] == "0"
    assert labels["nvidia.com/mig.capable"] == "true"
    assert {k: v for k, v in labels.items() if k.startswith("nvidia.com/mig-2g.10gb.")} == {
        "nvidia.com/mig-2g.10gb.count": "2",
        "nvidia.com/mig-2g.10gb.memory": "9856",
        "nvidia.com/mig-2g.10gb.multiprocessors": "28",
        "nvidia.com/mig-2g.10gb.product": "NVIDIA-A100-SXM4-40GB-MIG-2g.10gb",
        "nvidia.com/mig-2g.10gb.replicas": "1",
        "nvidia.com/mig-2g.10gb.sharing-strategy": "none",
        "nvidia.com/mig-2g.10gb.slices.ci": "2",
        "nvidia.com/mig-2g.10gb.slices.gi": "2",
    }


def test_bumble_mig_single_labels(make_world: Any) -> None:
    seven = {keys.MIG_LAYOUT: json.dumps({"0": [f"1g.5gb@{i}" for i in range(7)]})}
    labels = found(make_world(gpu="20f1", env="single", annotations=seven))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb"
    assert labels["nvidia.com/gpu.count"] == "7"
    assert labels["nvidia.com/gpu.memory"] == "4864"


def test_nvidia_media_slice_has_a_dot_in_the_product(make_world: Any) -> None:
    media = {keys.MIG_LAYOUT: json.dumps({"0": ["1g.5gb+me@0"]})}
    labels = found(make_world(gpu="20f1", env="single", annotations=media))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb.me"


def test_single_with_several_profiles_is_invalid(make_world: Any) -> None:
    labels = found(make_world(gpu="20b0", env="single", annotations=CUT))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-INVALID"
    assert labels["nvidia.com/gpu.count"] == "0"


SEVEN = [f"1g.5gb@{i}" for i in range(7)]
TWO_OF_FOUR = {keys.MIG_LAYOUT: json.dumps({"0": SEVEN, "1": SEVEN})}


def test_mixed_with_two_of_four_gpus_cut(make_world: Any) -> None:
    """gpu.count counts all four, as the real one does; sharing labels describe the whole ones."""
    both = {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}}
    labels = found(
        make_world(gpu="20b0", count=4, annotations=TWO_OF_FOUR, sharing=both, strategy="time-slicing")
    )
    assert labels["nvidia.com/gpu.count"] == "4"
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-SHARED"
    assert labels["nvidia.com/gpu.replicas"] == "2"
    assert labels["nvidia.com/mig-1g.5gb.count"] == "14"
    assert labels["nvidia.com/mig-1g.5gb.sharing-strategy"] == "none"


def test_single_refuses_a_node_with_a_whole_gpu(make_world: Any) -> None:
    labels = found(make_world(gpu="20b0", count=4, env="single", annotations=TWO_OF_FOUR))
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-40GB-MIG-INVALID"
    assert (labels["nvidia.com/gpu.count"], labels["nvidia.com/gpu.memory"]) == ("0", "0")


@pytest.mark.parametrize(("rename", "product"), [("", "-SHARED"), ("nvidia.com/mig-1g.5gb.shared", "")])
def test_shared_slices_say_so_unless_they_are_renamed(make_world: Any, rename: str, product: str) -> None:
    entry = {"name": "nvidia.com/mig-1g.5gb", "replicas": 2, "rename": rename}
    shared = {"timeSlicing": {"resources": [entry]}}
    labels = found(
        make_world(gpu="20b0", count=4, annotations=TWO_OF_FOUR, sharing=shared, strategy="time-slicing")
    )
    assert labels["nvidia.com/mig-1g.5gb.product"] == f"NVIDIA-A100-SXM4-40GB-MIG-1g.5gb{product}"
    assert labels["nvidia.com/mig-1g.5gb.replicas"] == "2"
    assert labels["nvidia.com/mig-1g.5gb.sharing-strategy"] == "time-slicing"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "none"


def test_labels_of_a_former_layout_go(make_world: Any) -> None:
    stale = {"nvidia.com/mig-1g.5gb.count": "7", "nvidia.com/mig.config": "all-1g.5gb"}
    labels = found(make_world(gpu="20b0", labels=stale, annotations=CUT))
    assert labels["nvidia.com/mig-1g.5gb.count"] is None
    assert "nvidia.com/mig.config" not in labels


def test_same_labels_again_write_nothing(make_world: Any) -> None:
    first = found(make_world())
    assert gfd.act(make_world(labels=first)) == []


@pytest.mark.parametrize("missing", ["gfd", "driver"])
def test_no_operand_no_labels(make_world: Any, missing: str) -> None:
    operands = tuple({"nfd-worker", "driver", "gfd"} - {missing})
    assert gfd.act(make_world(operands=operands)) == []
