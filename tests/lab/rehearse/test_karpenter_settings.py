"""What Karpenter is started with, and what its instances bring: adapters, huge pages."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from infra.config import load
from infra.model.gpu.machines import MACHINES
from infra.plan import user_data
from infra.plan.eks import karpenter_values
from lab.rehearse.cloud import instances
from lab.rehearse.karpenter import Release, environment

pytestmark = pytest.mark.unit


def given(values: object) -> dict[str, str]:
    return environment(Release("kube-system", json.dumps(values)))


@pytest.mark.parametrize(
    ("stack", "gates"),
    [
        ("aws-dev", "NodeOverlay=true,ReservedCapacity=false"),
        ("aws-prod", "NodeOverlay=true,ReservedCapacity=true"),
    ],
)
def test_the_settings_of_our_own_stacks_arrive(stack: str, gates: str) -> None:
    result = given(karpenter_values(load(Paths.here().root / f"Pulumi.{stack}.yaml")))
    assert result["CLUSTER_NAME"] == result["INTERRUPTION_QUEUE"] == stack
    assert result["EKS_CONTROL_PLANE"] == "true"
    assert result["FEATURE_GATES"] == gates
    assert result["SYSTEM_NAMESPACE"] == "kube-system"
    assert (result["CPU_REQUESTS"], result["MEMORY_LIMIT"]) == ("1000", str(2**30))


def test_what_is_left_out_or_empty_is_karpenters_own_default() -> None:
    result = given({"settings": {"clusterName": "a", "interruptionQueue": "", "reservedENIs": 2}})
    assert result["RESERVED_ENIS"] == "2"
    assert not {"INTERRUPTION_QUEUE", "FEATURE_GATES", "CPU_REQUESTS", "MEMORY_LIMIT"} & set(result)


def test_a_setting_that_would_get_lost_is_refused() -> None:
    with pytest.raises(Failure, match=r"settings\.brandNew: is not supported in a rehearsal"):
        given({"settings": {"clusterName": "a", "brandNew": True}})


STACK = load(Path(__file__).parents[3] / "Pulumi.aws-prod.yaml")
SIM = "simulator.gpuform.io/"


def node_annotations(text: str, adapters: int) -> dict[str, str]:
    reported = instances.read_user_data(base64.b64encode(text.encode()).decode())
    place = ("node", "i-1", "us-west-2b", "us-west-2")
    made = instances.node_manifest(MACHINES["p5.48xlarge"], *place, reported, adapters)
    result: dict[str, str] = made["metadata"]["annotations"]
    return result


@pytest.mark.parametrize(
    "text",
    [
        user_data.render(STACK, STACK.pool("h100-training")),
        '[settings.kernel.sysctl]\n"vm.nr_hugepages" = "5120"\n',
    ],
    ids=["AL2023", "Bottlerocket"],
)
def test_huge_pages_are_taken_off_the_other_memory(text: str) -> None:
    result, plain = node_annotations(text, 32), node_annotations("", 0)
    assert (result[f"{SIM}efa"], result[f"{SIM}hugepages-2Mi"]) == ("32", "10240Mi")
    left = [int(item[f"{SIM}memory"].removesuffix("Mi")) for item in (result, plain)]
    assert left[1] - left[0] == 10240
    assert plain.keys().isdisjoint({f"{SIM}efa", f"{SIM}hugepages-2Mi"})
