"""Which resources a state shows, what is left of it without its cluster, and what blocks a destroy."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from components.manifest import GROUPLESS
from gpuform.kubernetes.client import Unreachable
from gpuform.stack.destroy import cluster, finalizers
from gpuform.stack.destroy.cluster import (
    BUDGET,
    DEPLOYMENT,
    EVENT,
    LEASE,
    Cluster,
    Kind,
    Left,
    StillThere,
    listed,
    until_gone,
)
from gpuform.stack.destroy.state import Declared, Known, without_cluster
from infra.config import parse
from infra.plan import workloads
from tests.config.tables import SERVED
from tests.stack.destroy import told_state as told
from tests.stack.destroy.told_state import PlayedCluster, resource

pytestmark = pytest.mark.unit


def test_a_state_is_told_apart() -> None:
    known = Known.of(told.STATE)
    assert known.inside == {told.RELEASE, told.LABELS, told.POD}
    assert known.workloads() == (Declared("Pod", "examples", "p"),)
    assert not known.only((told.NETWORK, told.VPC))
    assert not known.empty
    assert Known.of({"deployment": {"resources": [resource(told.STACK)]}}).empty
    assert Known.of({"deployment": {}}).empty


def test_workloads_lie_in_components_of_their_own_and_two_colours_are_two() -> None:
    inner = f"{told.WORKLOADS.rpartition('::')[0]}$gpuform:workloads:GpuDeployment"
    web = f"{inner}::w"
    colours = {"deployment": {"metadata": {"namespace": "lab", "name": "web"}}, "kubeconfig": "k"}
    made = [
        resource(
            f"{inner}$kubernetes:apps/v1:Deployment::w", parent=web, provider=told.KUBERNETES, id="lab/w"
        ),
        resource(f"{inner}$kubernetes:core/v1:Service::s", parent=web, provider=told.KUBERNETES, id="lab/w"),
        resource(f"{inner}$gpuform:workloads:BlueGreen::b", parent=web, provider=told.OWN, inputs=colours),
    ]
    known = Known.of({"deployment": {"resources": [resource(told.STACK), *made]}})
    assert known.workloads() == (
        Declared("Deployment", "lab", "w"),
        Declared("Deployment", "lab", "web-blue"),
        Declared("Deployment", "lab", "web-green"),
    )


def test_parts_without_pods_are_left_to_the_engine_and_a_destroy_can_delete_all_others() -> None:
    """Of a served and scaled workload; a destroy looks each kind up."""
    inner = f"{told.WORKLOADS.rpartition('::')[0]}$gpuform:workloads:GpuDeployment"
    env = parse(SERVED)
    objects = workloads.objects(env, env.workloads[1])
    types = [
        f"kubernetes:{GROUPLESS.get(one['apiVersion'], one['apiVersion'])}:{one['kind']}" for one in objects
    ]
    made = [
        resource(f"{inner}${token}::t", parent=f"{inner}::t", provider=told.KUBERNETES, id="default/triton")
        for token in types
    ]
    known = Known.of({"deployment": {"resources": [resource(told.STACK), *made]}})
    assert [one.kind for one in known.workloads()] == ["InferenceService"]
    assert cluster.WORKLOADS["InferenceService"].path().startswith("/apis/serving.kserve.io/v1beta1/")


def test_a_cluster_that_is_gone_leaves_no_word_in_the_state() -> None:
    left = without_cluster(told.STATE)
    kept = [one["urn"] for one in left["deployment"]["resources"]]
    assert kept == [told.STACK, told.NETWORK, told.VPC, told.CLUSTER, told.WORKLOADS, told.QUEUE]
    queue = left["deployment"]["resources"][-1]
    assert queue["dependencies"] == [told.CLUSTER]
    assert queue["propertyDependencies"] == {"name": [], "tags": [told.CLUSTER]}
    assert "deletedWith" not in queue
    assert [one["resource"]["urn"] for one in left["deployment"]["pending_operations"]] == [told.QUEUE]
    assert Known.of(told.STATE).inside, "what was given is not changed"


def _lease(age: float, holder: str = "karpenter-1") -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "age": age}}


def _renewed(lease: dict[str, Any]) -> dict[str, Any]:
    """With a time instead of its age, relative to now: tests are collected long before they run."""
    then = datetime.now(UTC) - timedelta(seconds=lease["spec"]["age"])
    return {"spec": {**lease["spec"], "renewTime": then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}


@pytest.mark.parametrize(
    ("objects", "alive", "said"),
    [
        ({}, False, "is not running"),
        ({DEPLOYMENT: [{"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}]}, True,
         r"is running \(1 of 2 ready\)"),
        ({DEPLOYMENT: [{"spec": {"replicas": 2}, "status": {}}]}, False, r"is not ready \(0 of 2\)"),
        ({LEASE: [_lease(3)]}, True, "is running .karpenter-1 is the leader"),
        ({LEASE: [_lease(600)]}, False, "is not running"),
        ({LEASE: [_lease(3, "")]}, False, "is not running"),  # it released its lease
        ({DEPLOYMENT: [{"status": {}}], LEASE: [_lease(3)]}, True, "is running"),
    ],
)  # fmt: skip
def test_whether_karpenter_lives(objects: dict[Kind, list[dict[str, Any]]], alive: bool, said: str) -> None:
    played = {
        kind: [_renewed(one) if kind == LEASE else one for one in ones] for kind, ones in objects.items()
    }
    found = finalizers.controller(cast(Cluster, PlayedCluster(played)))
    assert found.alive is alive
    assert re.match(said, found.said)


def test_what_blocks_is_named() -> None:
    budget = {
        "metadata": {"namespace": "web", "name": "shop"},
        "spec": {"minAvailable": 2},
        "status": {"expectedPods": 2, "currentHealthy": 2, "disruptionsAllowed": 0},
    }
    free = {**budget, "metadata": {"name": "free"}, "status": {"expectedPods": 2, "disruptionsAllowed": 1}}
    event = {"involvedObject": {"name": "a"}, "reason": "FailedDraining", "message": "1 pod is waiting"}
    other = {"involvedObject": {"name": "z"}, "reason": "Other", "message": "-"}
    played = PlayedCluster({BUDGET: [budget, free], EVENT: [event, other]})
    lives, said = finalizers.why(cast(Cluster, played), [Left("NodeClaim", "a")])
    assert not lives.alive
    assert "budgets that allow no eviction: web/shop (2 healthy, minAvailable 2);" in said
    assert said.endswith("last warnings: FailedDraining: 1 pod is waiting")


def test_waiting_ends_and_says_what_is_left() -> None:
    left = [Left("NodeClaim", f"n{index}", "finalizer f") for index in range(7)] + [Left("EC2NodeClass", "c")]
    text = listed(left)
    assert text.startswith("7 NodeClaims left: n0 (finalizer f), ")
    assert text.endswith("n4 (finalizer f) and 2 more; 1 EC2NodeClass left: c")
    said: list[str] = []
    with pytest.raises(StillThere, match=r"and 2 more; 1 EC2NodeClass left: c after 0\.3 s"):
        until_gone(lambda: left, 0.3, said.append)
    assert said == [text], "an unchanged line is not said again"
    answers = iter([left, Unreachable("no answer"), []])

    def look() -> list[Left]:
        found = next(answers)
        if isinstance(found, Exception):
            raise found
        return found

    until_gone(look, 5, said.append)
    assert said[1:] == [text, "no answer"]
