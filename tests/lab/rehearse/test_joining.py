"""What a simulated instance brings: adapters from its launch, huge pages that its user data reserves."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from infra.config import load
from infra.model.machines import MACHINES
from infra.plan import user_data
from lab.rehearse.cloud import joining

pytestmark = pytest.mark.unit

STACK = load(Path(__file__).parents[3] / "Pulumi.aws-prod.yaml")
SIM = "simulator.gpuform.io/"


def annotations(text: str, adapters: int) -> dict[str, str]:
    told = joining.kubelet(base64.b64encode(text.encode()).decode())
    place = ("node", "i-1", "us-west-2b", "us-west-2")
    made = joining.node(MACHINES["p5.48xlarge"], *place, told, adapters)
    found: dict[str, str] = made["metadata"]["annotations"]
    return found


@pytest.mark.parametrize(
    "text",
    [
        user_data.of(STACK, STACK.pool("h100-training")),
        '[settings.kernel.sysctl]\n"vm.nr_hugepages" = "5120"\n',
    ],
    ids=["AL2023", "Bottlerocket"],
)
def test_huge_pages_are_taken_off_the_other_memory(text: str) -> None:
    found, plain = annotations(text, 32), annotations("", 0)
    assert (found[f"{SIM}efa"], found[f"{SIM}hugepages-2Mi"]) == ("32", "10240Mi")
    left = [int(one[f"{SIM}memory"].removesuffix("Mi")) for one in (found, plain)]
    assert left[1] - left[0] == 10240
    assert plain.keys().isdisjoint({f"{SIM}efa", f"{SIM}hugepages-2Mi"})
