"""A GPU chosen by its required properties: exactly the catalogue's models that have them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.reports.catalogue import entries
from infra.model.errors import InputError
from infra.model.gpu import GPUS, Gpu, Support
from infra.model.gpu_choice import GpuChoice
from infra.model.sharing import Mps
from infra.model.sharing_checks import check_sharing
from infra.plan import karpenter
from tests.plan.aws_environments import aws

pytestmark = pytest.mark.unit

# NVIDIA's data sheets: boards of SXM modules have NVLink; PCIe cards have at most a bridge connector.
LINKED = {
    *("V100-SXM2-16GB", "V100-SXM2-32GB", "A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM", "H200", "B200"),
    *("B300", "GB200"),
}


def models(**asked: Any) -> set[str]:
    return set(GpuChoice(count=1, **asked).models)


def test_the_linked_ones_are_the_modules() -> None:
    assert models(nvlink=True) == LINKED
    assert models(nvlink=False) == set(GPUS) - LINKED
    assert {entry["name"] for entry in entries() if entry["nvlink"]} == LINKED


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"memory_gib": 40, "nvlink": True, "compute": "8.0"}, LINKED - {"V100-SXM2-16GB", "V100-SXM2-32GB"}),
        ({"memory_gib": 140}, {"H200", "B200", "GB200", "B300"}),
        ({"memory_gib": 180}, {"GB200", "B300"}),
        (
            {"compute": 9.0, "nvlink": False, "memory_gib": 79},
            {"H100-PCIe", "H100-NVL", "GH200", "RTX-PRO-6000"},
        ),
        ({"compute": 10}, {"B200", "GB200", "B300", "RTX-PRO-4500", "RTX-PRO-6000"}),
        (
            {"memory_gib": 24, "compute": "8.6", "nvlink": False},
            {"A40", "L40", "L40S", "H100-PCIe", "H100-NVL", "GH200", "RTX-PRO-4500", "RTX-PRO-6000"},
        ),
    ],
)
def test_every_model_that_has_it_will_do(asked: dict[str, Any], found: set[str]) -> None:
    assert models(**asked) == found


def test_compute_capability_is_compared_as_a_version() -> None:
    """10.0 is more than 9.0, but as text it would be less."""
    assert "B200" in models(compute="9.0")


def test_a_choice_by_attributes_buys_what_the_same_models_by_name_do() -> None:
    named = {"models": ["A100-SXM4-40GB", "A100-SXM4-80GB", "H100-SXM", "H200", "B200", "B300"], "count": 8}
    asked = {"memory_gib": 40, "nvlink": True, "compute": "8.0", "count": 8}
    one, two = aws({"gpu": named}), aws({"gpu": asked})
    assert karpenter.node_pools(one, one.pools[0]) == karpenter.node_pools(two, two.pools[0])
    assert two.resolved()["pools"][0]["gpu"] == asked


def test_mps_needs_the_limits_of_volta() -> None:
    old = Gpu("M60", "Tesla M60", 7680, (5, 2), "maxwell", "10de:13f2", Support("450"))
    with pytest.raises(InputError) as caught:
        check_sharing([GPUS["T4"], old], Mps(kind="mps", replicas=2), "single")
    assert str(caught.value) == (
        "sharing.kind: M60 has compute capability 5.2, and MPS needs 7.0 to limit each client's memory; "
        "use time_slicing"
    )
    check_sharing([GPUS["T4"]], Mps(kind="mps", replicas=2), "single")


def test_attributes_select_only_what_the_default_image_supports() -> None:
    """EC2 sells T4G with arm64 only, and older images have no driver for RTX-PRO-4500."""
    env = aws({"gpu": {"memory_gib": 15, "compute": "7.5", "count": 1}})
    assert "T4" in env.pools[0].gpu.models
    assert not {"T4G", "RTX-PRO-4500"} & set(env.pools[0].gpu.models)
    with pytest.raises(InputError, match=r"pools\[0\].aws.image: al2023-nvidia is for amd64, and g5g"):
        aws({"gpu": {"models": ["T4", "T4G"], "count": 1}})
