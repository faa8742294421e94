"""Karpenter's environment variables, derived from the values of its chart."""

from __future__ import annotations

import json

import pytest

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from infra.config import load
from infra.plan.eks import karpenter_values
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
    found = given(karpenter_values(load(Paths.here().root / f"Pulumi.{stack}.yaml")))
    assert found["CLUSTER_NAME"] == found["INTERRUPTION_QUEUE"] == stack
    assert found["EKS_CONTROL_PLANE"] == "true"
    assert found["FEATURE_GATES"] == gates
    assert found["SYSTEM_NAMESPACE"] == "kube-system"
    assert (found["CPU_REQUESTS"], found["MEMORY_LIMIT"]) == ("1000", str(2**30))


def test_what_is_left_out_or_empty_is_karpenters_own_default() -> None:
    found = given({"settings": {"clusterName": "a", "interruptionQueue": "", "reservedENIs": 2}})
    assert found["RESERVED_ENIS"] == "2"
    assert not {"INTERRUPTION_QUEUE", "FEATURE_GATES", "CPU_REQUESTS", "MEMORY_LIMIT"} & set(found)


def test_a_setting_that_would_get_lost_is_refused() -> None:
    with pytest.raises(Failure, match=r"settings\.brandNew: is not supported in a rehearsal"):
        given({"settings": {"clusterName": "a", "brandNew": True}})
