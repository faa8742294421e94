"""The AWS program: its provider and dependencies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.build.aws_stacks import changed, small, stack, waits_for
from tests.fakes.recorder import Recorder, kubeconfig, record, record_once

pytestmark = pytest.mark.unit

RELEASE = "kubernetes:helm.sh/v3:Release"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ADD_ON = "aws:eks/addon:Addon"
STACKS = ("aws-dev", "aws-prod")


@pytest.fixture(scope="module", params=STACKS)
def recorded(request: pytest.FixtureRequest) -> Recorder:
    return record_once(stack(request.param))


@pytest.fixture(scope="module")
def prod() -> Recorder:
    return record_once(stack("aws-prod"))


def test_every_resource_and_every_question_goes_through_the_stacks_own_provider(recorded: Recorder) -> None:
    assert recorded.calls
    for call in recorded.calls:
        assert "pulumi:providers:aws::" in (call.provider or ""), call.token
    for resource in recorded.resources:
        if resource.type.startswith("aws:"):
            assert "pulumi:providers:aws::" in resource.provider, resource.name
        elif resource.type.startswith("kubernetes:"):
            assert "pulumi:providers:kubernetes::" in resource.provider, resource.name


def test_everything_carries_the_declared_tags(prod: Recorder) -> None:
    provider = prod.one("pulumi:providers:aws")
    assert provider.inputs["region"] == "us-west-2"
    assert json.loads(provider.inputs["defaultTags"])["tags"] == {
        "gpuform.io/environment": "aws-prod",
        "cost-center": "research",
        "data-class": "internal",
    }


NAT = "aws:ec2/natGateway:NatGateway network-nat-us-west-2a"
GATEWAY = "aws:ec2/internetGateway:InternetGateway network-internet"
ROUTE = "aws:ec2/route:Route network-private-us-west-2c-nat"
CLUSTER = "aws:eks/cluster:Cluster aws-prod-cluster"
LOGS = "aws:cloudwatch/logGroup:LogGroup aws-prod-logs"
CLUSTER_POLICY = "aws:iam/rolePolicyAttachment:RolePolicyAttachment aws-prod-control-plane"
SYSTEM, SLICES = f"{NODE_GROUP} system-system", f"{NODE_GROUP} mng-a100-mig"
CRDS, CONTROLLER = f"{RELEASE} karpenter-crd", f"{RELEASE} karpenter-controller"
IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation karpenter-controller"
QUEUE_POLICY = "aws:sqs/queuePolicy:QueuePolicy karpenter-interruption"
POOL = "kubernetes:karpenter.sh/v1:NodePool elastic-pool"
CLASS = "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass elastic-class"
OVERLAY = "kubernetes:karpenter.sh/v1alpha1:NodeOverlay elastic-overlay"
GATE, RBAC = "kubernetes:apps/v1:Deployment", "kubernetes:rbac.authorization.k8s.io/v1"
ORDER = [
    (NAT, GATEWAY),
    (CLUSTER, LOGS),
    (CLUSTER, CLUSTER_POLICY),
    (SYSTEM, f"{ADD_ON} node-add-ons-vpc-cni"),
    (SYSTEM, f"{ADD_ON} node-add-ons-kube-proxy"),
    (SYSTEM, f"{ADD_ON} node-add-ons-eks-pod-identity-agent"),
    (SYSTEM, ROUTE),
    (f"{ADD_ON} add-ons-coredns", SYSTEM),
    (f"{ADD_ON} add-ons-aws-ebs-csi-driver", SYSTEM),
    (SLICES, SYSTEM),
    (CRDS, SLICES),
    (CRDS, f"{ADD_ON} add-ons-coredns"),
    (CONTROLLER, CRDS),
    (CONTROLLER, IDENTITY),
    (CONTROLLER, QUEUE_POLICY),
    ("kubernetes:core/v1:Namespace namespaces-gpu-operator", f"{ADD_ON} add-ons-coredns"),
    (f"{RELEASE} gpu-operator-release", f"{RELEASE} monitoring-release"),
    (f"{POOL}-cpu-spot", CONTROLLER),
    (f"{POOL}-cpu-spot", f"{RELEASE} gpu-operator-release"),
    (f"{GATE} readiness-gate-deployment", "kubernetes:core/v1:ConfigMap readiness-gate-program"),
    (f"{GATE} readiness-gate-deployment", f"{RBAC}:RoleBinding readiness-gate-role-binding"),
    (f"{RBAC}:RoleBinding readiness-gate-role-binding", f"{RBAC}:Role readiness-gate-role"),
    (f"{POOL}-l40s-inference-spot", f"{GATE} readiness-gate-deployment"),
    (f"{POOL}-cpu-spot", f"{CLASS}-cpu"),
    (f"{POOL}-l40s-inference-spot", OVERLAY),
    ("kubernetes:batch/v1:Job workloads-science-training", f"{POOL}-h100-training"),
]


@pytest.mark.parametrize(("later", "earlier"), ORDER)
def test_each_part_comes_after_those_it_needs(prod: Recorder, later: str, earlier: str) -> None:
    (resource,) = [item for item in prod.resources if f"{item.type} {item.name}" == later]
    assert [key for key in waits_for(prod, resource) if key.startswith(earlier)]


def test_the_kubeconfig_holds_no_token_and_is_a_secret() -> None:
    secret, text = kubeconfig(stack("aws-dev"))
    assert secret
    content = json.loads(text)
    (user,) = content["users"]
    exec_ = user["user"].pop("exec")
    assert user["user"] == {}
    assert " ".join([exec_.pop("command"), *exec_.pop("args")]) == (
        "aws eks get-token --region us-east-1 --cluster-name aws-dev --output json"
    )
    assert exec_ == {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never"}
    (cluster,) = content["clusters"]
    assert cluster["cluster"]["server"].startswith("https://")
    assert cluster["cluster"]["certificate-authority-data"]


def test_only_fixed_pools_are_cut_by_a_workflow_and_only_elastic_ones_bring_karpenter() -> None:
    pool = {"name": "a", "machine": "p4d.24xlarge", "sharing": {"kind": "mig", "layout": "all-1g.5gb"}}
    fixed, elastic = {**pool, "nodes": 1}, {**pool, "elastic": {"max": {"cpu": 192}}}
    with_fixed, with_elastic = record_once(small(fixed)), record_once(small(elastic))
    assert [r.name for r in with_fixed.of("gpuform:nodes:MigLayout")] == ["mig-a"]
    assert not with_elastic.of("gpuform:nodes:MigLayout")
    assert not with_fixed.of("gpuform:aws:Karpenter")
    assert not with_fixed.of("gpuform:aws:ElasticPools")
    assert len(with_elastic.of("kubernetes:karpenter.sh/v1:NodePool")) == 1


@pytest.mark.parametrize("nodes", [{"nodes": 1}, {"elastic": {"max": {"cpu": 16}}}], ids=["fixed", "comes"])
def test_only_gpus_bring_the_readiness_gate(nodes: dict[str, object]) -> None:
    plain = {"name": "a", "machine": "m6i.xlarge", "elastic": {"max": {"cpu": 16}}}
    without = record_once(small(plain, images={"al2023": "al2023@v20260801"}))
    assert not without.of("gpuform:platform:ReadinessGate")
    both = record_once(small(plain, {"name": "b", "machine": "g4dn.xlarge", **nodes}))
    assert both.one("gpuform:platform:ReadinessGate").name == "readiness-gate"
    added = {resource.name for resource in both.resources} - {resource.name for resource in without.resources}
    roles = ["account", "cluster-role", "cluster-role-binding", "role", "role-binding", "program"]
    roles += ["deployment", *(["trial-role", "trial-role-binding"] if "nodes" in nodes else [])]
    assert {name for name in added if name.startswith("readiness")} == {
        "readiness-gate",
        *(f"readiness-gate-{role}" for role in roles),
    }


def test_a_new_version_reaches_control_plane_add_ons_and_images() -> None:
    before, after = (record(changed(stack("aws-dev"), version=version)) for version in ("1.34", "1.35"))
    inputs = {(r.type, r.name): r.inputs for r in after.resources}
    changed_names = {r.name for r in before.resources if inputs[r.type, r.name] != r.inputs}
    assert changed_names == {"aws-dev-cluster", "add-ons-coredns", "node-add-ons-kube-proxy", "system-system"}


@pytest.mark.parametrize(
    ("health", "repaired"),
    [({}, True), ({"health": {"mode": "cordon"}}, False), ({"health": {"repair": "eks"}}, True)],
)
def test_a_group_with_gpus_is_repaired_by_one(health: dict[str, Any], repaired: bool) -> None:
    env = small({"name": "fixed", "machine": "g4dn.xlarge", "nodes": 1}) | {"monitoring": {}, **health}
    groups = {group.name: group.inputs for group in record(env).of(NODE_GROUP)}
    enabled = {name: inputs["nodeRepairConfig"]["enabled"] for name, inputs in groups.items()}
    assert enabled == {"mng-fixed": repaired, "system-system": True}
