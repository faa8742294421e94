"""The parts of a destroy by themselves: what a state says, who is to blame, what is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gpuform.destroy import Destroy, blockers, proof
from gpuform.destroy.cluster import BUDGET, DEPLOYMENT, EVENT, LEASE, Cluster, Kind
from gpuform.destroy.grounds import Options
from gpuform.destroy.site import Site
from gpuform.destroy.state import Declared, Eks, Known, without_cluster
from gpuform.destroy.steps import OF_EKS, OF_MAGNUM
from gpuform.destroy.waiting import Left, StillThere, listed, until_gone
from gpuform.engine import Engine, Result
from gpuform.errors import Failure, InputError
from gpuform.paths import Paths
from gpuform.plugins.kubernetes.client import Unreachable
from infra.config import load
from tests.destroy.account import REGION

pytestmark = pytest.mark.unit

HERE = Paths.here()
BASE = "urn:pulumi:s::gpuform::"
KUBERNETES = f"{BASE}gpuform:aws:EksCluster$pulumi:providers:kubernetes::k::id"
AWS = f"{BASE}pulumi:providers:aws::a::id"
OWN = f"{BASE}pulumi:providers:gpuform::default::id"


def _urn(path: str, name: str) -> str:
    return f"{BASE}{path}::{name}"


STACK, NETWORK = _urn("pulumi:pulumi:Stack", "s"), _urn("gpuform:aws:Network", "network")
VPC = _urn("gpuform:aws:Network$aws:ec2/vpc:Vpc", "vpc")
CLUSTER = _urn("aws:eks/cluster:Cluster", "c")
RELEASE = _urn("kubernetes:helm.sh/v3:Release", "karpenter")
LABELS = _urn("gpuform:nodes:PoolNodes", "pool")
WORKLOADS = _urn("gpuform:platform:Workloads", "workloads")
POD = _urn("gpuform:platform:Workloads$kubernetes:core/v1:Pod", "p")
QUEUE = _urn("aws:sqs/queue:Queue", "q")


def _resource(urn: str, **more: Any) -> dict[str, Any]:
    kind = urn.split("::")[2].rpartition("$")[2]
    return {"urn": urn, "type": kind, "custom": not kind.startswith("gpuform:"), **more}


OUTPUTS = {
    "name": "s",
    "endpoint": "https://e",
    "certificateAuthority": {"data": "Y2E="},
    "arn": "arn:aws:eks:r:42:c",
}
STATE: dict[str, Any] = {
    "version": 3,
    "deployment": {
        "resources": [
            _resource(STACK),
            _resource(NETWORK, parent=STACK),
            _resource(VPC, parent=NETWORK, provider=AWS, id="vpc-1"),
            _resource(CLUSTER, provider=AWS, outputs=OUTPUTS, dependencies=[VPC]),
            _resource(RELEASE, provider=KUBERNETES, id="kube-system/karpenter"),
            _resource(LABELS, custom=True, provider=OWN, inputs={"kubeconfig": "secret"}),
            _resource(WORKLOADS, parent=STACK),
            _resource(POD, parent=WORKLOADS, provider=KUBERNETES, id="examples/p"),
            _resource(
                QUEUE,
                provider=AWS,
                dependencies=[RELEASE, CLUSTER],
                propertyDependencies={"name": [RELEASE], "tags": [CLUSTER]},
                deletedWith=RELEASE,
            ),
        ],
        "pending_operations": [
            {"resource": _resource(RELEASE), "type": "deleting"},
            {"resource": _resource(QUEUE), "type": "deleting"},
        ],
    },
}


def test_a_state_is_told_apart() -> None:
    known = Known.of(STATE)
    assert known.eks == Eks("s", "https://e", "Y2E=", "42")
    assert known.vpcs == ("vpc-1",)
    assert known.inside == {RELEASE, LABELS, POD}
    assert known.workloads() == (Declared("v1", "Pod", "examples", "p"),)
    assert known.before_the_network() == (CLUSTER, RELEASE, LABELS, WORKLOADS, POD, QUEUE)
    assert not known.empty
    assert Known.of({"deployment": {"resources": [_resource(STACK)]}}).empty
    assert Known.of({"deployment": {}}).empty


def test_workloads_lie_in_components_of_their_own_and_two_colours_are_two() -> None:
    inner = f"{WORKLOADS.rpartition('::')[0]}$gpuform:workloads:GpuDeployment"
    web = f"{inner}::w"
    colours = {"deployment": {"metadata": {"namespace": "lab", "name": "web"}}, "kubeconfig": "k"}
    made = [
        _resource(f"{inner}$kubernetes:apps/v1:Deployment::w", parent=web, provider=KUBERNETES, id="lab/w"),
        _resource(f"{inner}$kubernetes:core/v1:Service::s", parent=web, provider=KUBERNETES, id="lab/w"),
        _resource(f"{inner}$gpuform:workloads:BlueGreen::b", parent=web, provider=OWN, inputs=colours),
    ]
    known = Known.of({"deployment": {"resources": [_resource(STACK), *made]}})
    assert known.workloads() == (
        Declared("apps/v1", "Deployment", "lab", "w"),
        Declared("apps/v1", "Deployment", "lab", "web-blue"),
        Declared("apps/v1", "Deployment", "lab", "web-green"),
    )


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


class Played:
    """A cluster's answers."""

    def __init__(self, objects: dict[Kind, list[dict[str, Any]]]) -> None:
        self._objects = objects

    def find(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        return next(iter(self._objects.get(kind, ())), None)

    def objects(self, kind: Kind, namespace: str = "", **params: str) -> list[dict[str, Any]]:
        return self._objects.get(kind, [])


def _lease(age: float, holder: str = "karpenter-1") -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "age": age}}


def _renewed(lease: dict[str, Any]) -> dict[str, Any]:
    """With a moment in place of its age, as of now: a session collects its tests long before it runs them."""
    then = datetime.now(UTC) - timedelta(seconds=lease["spec"]["age"])
    return {"spec": {**lease["spec"], "renewTime": then.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}}


@pytest.mark.parametrize(
    ("objects", "alive", "said"),
    [
        ({}, False, "is not there"),
        (
            {DEPLOYMENT: [{"spec": {"replicas": 2}, "status": {"readyReplicas": 1}}]},
            True,
            r"lives \(1 of 2 ready\)",
        ),
        ({DEPLOYMENT: [{"spec": {"replicas": 2}, "status": {}}]}, False, r"is not ready \(0 of 2\)"),
        ({LEASE: [_lease(3)]}, True, "lives .karpenter-1 leads"),
        ({LEASE: [_lease(600)]}, False, "is not there"),
        ({LEASE: [_lease(3, "")]}, False, "is not there"),  # it gave its lease back
        ({DEPLOYMENT: [{"status": {}}], LEASE: [_lease(3)]}, True, "lives"),
    ],
)
def test_whether_karpenter_lives(objects: dict[Kind, list[dict[str, Any]]], alive: bool, said: str) -> None:
    played = {
        kind: [_renewed(one) if kind == LEASE else one for one in ones] for kind, ones in objects.items()
    }
    found = blockers.controller(cast(Cluster, Played(played)))
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
    played = Played({BUDGET: [budget, free], EVENT: [event, other]})
    lives, said = blockers.why(cast(Cluster, played), [Left("NodeClaim", "a")])
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


class PlayedEngine:
    """A state, and what was asked of it."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = STATE
        self.asked: list[tuple[str, ...]] = []
        self.backend = ""

    def environment(self, stack: str) -> tuple[dict[str, str], Any]:
        return {"PULUMI_BACKEND_URL": self.backend}, self.backend or None

    def export(self, stack: str) -> dict[str, Any]:
        return self.state

    def destroy(self, stack: str, on_event: Any, targets: Sequence[str] = ()) -> Result:
        self.asked.append(tuple(targets))
        self.state = {"deployment": {"resources": []}}
        return Result("destroy", stack, {"delete": 8}, 1.0)


@pytest.mark.parametrize("stack", ["local", "onprem-dev"])
def test_elsewhere_the_engine_does_all_of_it(stack: str) -> None:
    engine = PlayedEngine()
    env = load(HERE.root / f"Pulumi.{stack}.yaml")
    said: list[str] = []
    site = Site(env, HERE, cast(Engine, engine), stack, Options(), say=said.append)
    plan = site.plan()
    text = "\n".join(plan.lines())
    assert "6 resources will be deleted, in this order:\n  1. the engine deletes all that it made" in text
    assert ("hosts: what was installed on them" in text) == (stack == "onprem-dev")
    assert engine.asked == [], "a plan changes nothing"
    done = Destroy(site, plan).run()
    assert engine.asked == [()]
    assert [step["did"] for step in done.to_json()["steps"]] == ["8 deleted in 1.0 s"]
    assert "\n".join(site.plan().lines()) == f"{stack}: nothing is left to destroy"


def test_a_run_killed_at_its_very_end_is_ended() -> None:
    """The engine deletes its providers and the stack last; they are no resources, but the state has them."""
    engine = PlayedEngine()
    engine.state = {
        "deployment": {
            "resources": [_resource(STACK), _resource("urn:pulumi:s::gpuform::pulumi:providers:aws::aws")]
        }
    }
    env = load(HERE.root / "Pulumi.local.yaml")
    site = Site(env, HERE, cast(Engine, engine), "local", Options(), say=lambda text: None)
    plan = site.plan()
    assert not plan.nothing
    Destroy(site, plan).run()
    assert engine.asked == [()]
    assert site.plan().nothing


def test_what_the_engine_leaves_is_no_end() -> None:
    engine = PlayedEngine()
    site = Site(
        load(HERE.root / "Pulumi.local.yaml"), HERE, cast(Engine, engine), "local", Options(), say=print
    )
    with pytest.raises(
        Failure, match=r"stack local: still has aws:ec2/vpc:Vpc, .*; run the same command again"
    ):
        site.require_empty()


@pytest.mark.parametrize("option", ["force", "cluster_gone", "purge"])
def test_options_of_clouds_are_refused_elsewhere(option: str) -> None:
    site = Site(
        load(HERE.root / "Pulumi.local.yaml"), HERE, cast(Engine, None), "local", Options(**{option: True})
    )
    with pytest.raises(
        InputError, match=r"is for clusters (on AWS|that a stack makes at a cloud), and local is"
    ):
        site.refuse_options()


def test_an_offline_run_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    env = load(HERE.root / "Pulumi.aws-dev.yaml")
    site = Site(env, HERE, cast(Engine, None), "aws-dev", Options(offline=True, cluster_gone=True))
    with pytest.raises(InputError, match="--cluster-gone: asks EKS for proof, which an offline run does not"):
        site.refuse_options()


def test_only_the_cluster_s_own_account_proves_that_it_is_gone(moto: str) -> None:
    assert "EKS has no cluster s" in proof.require_gone(Eks("s", "", "", "123456789012"), REGION)
    with pytest.raises(
        InputError, match="the credentials are of account 123456789012, the cluster was in 42"
    ):
        proof.require_gone(Eks("s", "", "", "42"), REGION)


def test_a_refusal_is_no_proof(moto: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import ClientError

    real = proof.client

    def refusing(service: str, region: str) -> Any:
        made = real(service, region)

        def denied(**asked: str) -> None:
            raise ClientError(
                {"Error": {"Code": "AccessDeniedException", "Message": "not you"}}, "DescribeCluster"
            )

        if service == "eks":
            monkeypatch.setattr(made, "describe_cluster", denied)
        return made

    monkeypatch.setattr(proof, "client", refusing)
    with pytest.raises(Failure, match=r"AccessDeniedException: not you; that is no proof"):
        proof.require_gone(Eks("s", "", "", "123456789012"), REGION)


def test_the_page_has_the_steps_as_they_are() -> None:
    text = (HERE.root / "docs/destroy.md").read_text()
    rows = re.findall(r"^\| \d\. ([a-z ]+) \| (.+?) \| (.+?) \| (.+?) \|$", text, re.M)
    steps = (*OF_EKS, *OF_MAGNUM)
    bounds = [f"{step.bound_s:g} s" if step.bound_s else "the provider's" for step in steps]
    assert rows == [(s.name, s.does, s.waits_for, bound) for s, bound in zip(steps, bounds, strict=True)]
