"""Which resources a state shows, and what is left of it without its cluster."""

from __future__ import annotations

import pytest

from components.manifest import GROUPLESS
from gpuform.stack.destroy import cluster
from gpuform.stack.destroy.state import Declared, Known, without_cluster
from infra.config import parse
from infra.plan import workloads
from tests.config.tables import SERVED
from tests.stack.destroy.told_state import (
    CLUSTER,
    KUBERNETES,
    LABELS,
    NETWORK,
    OWN,
    POD,
    QUEUE,
    RELEASE,
    STACK,
    STATE,
    VPC,
    WORKLOADS,
    resource,
)

pytestmark = pytest.mark.unit


def test_a_state_is_told_apart() -> None:
    known = Known.of(STATE)
    assert known.inside == {RELEASE, LABELS, POD}
    assert known.workloads() == (Declared("Pod", "examples", "p"),)
    assert not known.only((NETWORK, VPC))
    assert not known.empty
    assert Known.of({"deployment": {"resources": [resource(STACK)]}}).empty
    assert Known.of({"deployment": {}}).empty


def test_workloads_lie_in_components_of_their_own_and_two_colours_are_two() -> None:
    inner = f"{WORKLOADS.rpartition('::')[0]}$gpuform:workloads:GpuDeployment"
    web = f"{inner}::w"
    colours = {"deployment": {"metadata": {"namespace": "lab", "name": "web"}}, "kubeconfig": "k"}
    made = [
        resource(f"{inner}$kubernetes:apps/v1:Deployment::w", parent=web, provider=KUBERNETES, id="lab/w"),
        resource(f"{inner}$kubernetes:core/v1:Service::s", parent=web, provider=KUBERNETES, id="lab/w"),
        resource(f"{inner}$gpuform:workloads:BlueGreen::b", parent=web, provider=OWN, inputs=colours),
    ]
    known = Known.of({"deployment": {"resources": [resource(STACK), *made]}})
    assert known.workloads() == (
        Declared("Deployment", "lab", "w"),
        Declared("Deployment", "lab", "web-blue"),
        Declared("Deployment", "lab", "web-green"),
    )


def test_parts_without_pods_are_left_to_the_engine_and_a_destroy_can_delete_all_others() -> None:
    """Of a served and scaled workload; a destroy looks each kind up."""
    inner = f"{WORKLOADS.rpartition('::')[0]}$gpuform:workloads:GpuDeployment"
    env = parse(SERVED)
    objects = workloads.objects(env, env.workloads[1])
    types = [
        f"kubernetes:{GROUPLESS.get(one['apiVersion'], one['apiVersion'])}:{one['kind']}" for one in objects
    ]
    made = [
        resource(f"{inner}${token}::t", parent=f"{inner}::t", provider=KUBERNETES, id="default/triton")
        for token in types
    ]
    known = Known.of({"deployment": {"resources": [resource(STACK), *made]}})
    assert [one.kind for one in known.workloads()] == ["InferenceService"]
    assert cluster.WORKLOADS["InferenceService"].path().startswith("/apis/serving.kserve.io/v1beta1/")


def test_a_cluster_that_is_gone_leaves_no_word_in_the_state() -> None:
    left = without_cluster(STATE)
    assert [one["urn"] for one in left["deployment"]["resources"]] == [
        STACK,
        NETWORK,
        VPC,
        CLUSTER,
        WORKLOADS,
        QUEUE,
    ]
    queue = left["deployment"]["resources"][-1]
    assert queue["dependencies"] == [CLUSTER]
    assert queue["propertyDependencies"] == {"name": [], "tags": [CLUSTER]}
    assert "deletedWith" not in queue
    assert [one["resource"]["urn"] for one in left["deployment"]["pending_operations"]] == [QUEUE]
    assert Known.of(STATE).inside, "what was given is not changed"
