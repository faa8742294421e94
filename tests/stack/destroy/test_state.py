"""Which resources a state shows, what is left of it without its cluster, and what blocks a destroy."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from unittest.mock import Mock

import pytest

from components.manifest import CORE_NAMES
from gpuform.kubernetes import kinds
from gpuform.kubernetes.client import Unreachable
from gpuform.kubernetes.cluster import Cluster
from gpuform.kubernetes.kinds import BUDGET, DEPLOYMENT, EVENT, LEASE, Kind
from gpuform.stack.destroy import operator
from gpuform.stack.destroy.state import DeclaredObject, State, forget_cluster_contents
from gpuform.stack.destroy.waiting import Remaining, StillExists, summarise, wait_until_deleted
from infra.config import parse
from infra.plan import workloads
from tests.config.tables import SERVED
from tests.stack.destroy import engine_state as states
from tests.stack.destroy.engine_state import PlayedCluster, resource

pytestmark = pytest.mark.unit


def test_state_separates_what_is_in_the_cluster() -> None:
    known = State.from_state(states.STATE)
    assert known.in_cluster == {states.RELEASE, states.LABELS, states.POD}
    assert known.workloads() == (DeclaredObject("Pod", "examples", "p"),)
    assert not known.has_only((states.NETWORK, states.VPC))
    assert not known.is_empty
    assert State.from_state({"deployment": {"resources": [resource(states.STACK)]}}).is_empty
    assert State.from_state({"deployment": {}}).is_empty


def test_workloads_lie_in_components_of_their_own_and_two_colours_are_two() -> None:
    inner = f"{states.WORKLOADS.rpartition('::')[0]}$gpuform:workloads:GpuDeployment"
    web = f"{inner}::w"
    colours = {"deployment": {"metadata": {"namespace": "lab", "name": "web"}}, "kubeconfig": "k"}
    of_cluster: dict[str, Any] = {"parent": web, "provider": states.KUBERNETES, "id": "lab/w"}
    made = [
        resource(f"{inner}$kubernetes:apps/v1:Deployment::w", **of_cluster),
        resource(f"{inner}$kubernetes:core/v1:Service::s", **of_cluster),
        resource(f"{inner}$gpuform:workloads:BlueGreen::b", parent=web, provider=states.OWN, inputs=colours),
    ]
    known = State.from_state({"deployment": {"resources": [resource(states.STACK), *made]}})
    names = ("w", "web-blue", "web-green")
    assert known.workloads() == tuple(DeclaredObject("Deployment", "lab", name) for name in names)


def test_parts_without_pods_are_left_to_the_engine_and_a_destroy_can_delete_all_others() -> None:
    """Of a served and scaled workload; a destroy looks each kind up."""
    inner = f"{states.WORKLOADS.rpartition('::')[0]}$gpuform:workloads:GpuDeployment"
    env = parse(SERVED)
    of_cluster = {"parent": f"{inner}::t", "provider": states.KUBERNETES, "id": "default/triton"}
    made = [
        resource(f"{inner}$kubernetes:{CORE_NAMES.get(version, version)}:{one['kind']}::t", **of_cluster)
        for one in workloads.objects(env, env.workloads[1])
        if (version := one["apiVersion"])
    ]
    known = State.from_state({"deployment": {"resources": [resource(states.STACK), *made]}})
    assert [one.kind for one in known.workloads()] == ["InferenceService"]
    assert kinds.WORKLOADS["InferenceService"].path().startswith("/apis/serving.kserve.io/v1beta1/")


def test_a_cluster_that_is_gone_leaves_no_word_in_the_state() -> None:
    left = forget_cluster_contents(states.STATE)
    kept = [one["urn"] for one in left["deployment"]["resources"]]
    assert kept == [states.STACK, states.NETWORK, states.VPC, states.CLUSTER, states.WORKLOADS, states.QUEUE]
    queue = left["deployment"]["resources"][-1]
    assert queue["dependencies"] == [states.CLUSTER]
    assert queue["propertyDependencies"] == {"name": [], "tags": [states.CLUSTER]}
    assert "deletedWith" not in queue
    assert [one["resource"]["urn"] for one in left["deployment"]["pending_operations"]] == [states.QUEUE]
    assert State.from_state(states.STATE).in_cluster, "what was given is not changed"


Lease = tuple[float, str]
"""Its age, since tests are collected long before they run, and its holder."""


@pytest.mark.parametrize(
    ("deployment", "lease", "alive", "state"),
    [
        (None, None, False, "is not running"),
        ({"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}, None, True,
         r"is running \(1 of 2 ready\)"),
        ({"spec": {"replicas": 2}, "status": {}}, None, False, r"is not ready \(0 of 2\)"),
        (None, (3, "karpenter-1"), True, "is running .karpenter-1 is the leader"),
        (None, (600, "karpenter-1"), False, "is not running"),
        (None, (3, ""), False, "is not running"),  # it released its lease
        ({"status": {}}, (3, "karpenter-1"), True, "is running"),
    ],
)  # fmt: skip
def test_karpenter_is_alive_by_ready_pods_or_a_renewed_lease(
    deployment: Any, lease: Lease | None, alive: bool, state: str
) -> None:
    played: dict[Kind, list[dict[str, Any]]] = {DEPLOYMENT: [deployment]} if deployment else {}
    if lease:
        renewed = (datetime.now(UTC) - timedelta(seconds=lease[0])).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        played[LEASE] = [{"spec": {"holderIdentity": lease[1], "renewTime": renewed}}]
    found = operator.read_controller(cast(Cluster, PlayedCluster(played)))
    assert found.alive is alive
    assert re.match(state, found.state)


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
    lives, message = operator.explain(cast(Cluster, played), [Remaining("NodeClaim", "a")])
    assert not lives.alive
    assert "budgets that allow no eviction: web/shop (2 healthy, minAvailable 2);" in message
    assert message.endswith("last warnings: FailedDraining: 1 pod is waiting")


def test_waiting_ends_and_says_what_is_left() -> None:
    left = [Remaining("NodeClaim", f"n{index}", "finalizer f") for index in range(7)]
    left.append(Remaining("EC2NodeClass", "c"))
    text = summarise(left)
    assert text.startswith("7 NodeClaims left: n0 (finalizer f), ")
    assert text.endswith("n4 (finalizer f) and 2 more; 1 EC2NodeClass left: c")
    message: list[str] = []
    with pytest.raises(StillExists, match=r"and 2 more; 1 EC2NodeClass left: c after 0\.3 s"):
        wait_until_deleted(lambda: left, 0.3, message.append)
    assert message == [text], "an unchanged line is not said again"
    look = Mock(side_effect=[left, Unreachable("no answer"), []])
    wait_until_deleted(look, 5, message.append)
    assert message[1:] == [text, "no answer"]
