"""Both AWS stacks, offline: previewed, created, unchanged, changed as required, refreshed and destroyed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import Engine, Event, Result, Step
from infra.model.losses import REPORT
from lab.offline.aws.provider import NOTICE
from tests.journey.aws_world import World, world
from tests.stack.destroy.played_karpenter import PlayedKarpenter
from tests.tiers import nightly_but

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

Edit = Callable[[dict[str, Any]], None]
KINDS = "nodepools.karpenter.sh,ec2nodeclasses.karpenter.k8s.aws,nodeoverlays.karpenter.sh"


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("dev"), "aws-dev") as made:
        made.first = made.run("preview"), made.run("up")  # type: ignore[attr-defined]
        yield made


def put(*path: str | int, value: Any) -> Edit:
    def edit(environment: dict[str, Any]) -> None:
        here: Any = environment
        for part in path[:-1]:
            here = here[part]
        here[path[-1]] = value

    return edit


def touched(result: Result) -> dict[str, set[str]]:
    """Names by operation; of a replacement's three steps only ``replace`` counts."""
    found: dict[str, set[str]] = {}
    for step in result.steps:
        if step.type != "pulumi:pulumi:Stack" and step.op not in ("create-replacement", "delete-replaced"):
            found.setdefault(step.op, set()).add(step.name)
    return found


def test_what_is_planned_is_made_and_then_stays(dev: World) -> None:
    planned, made = dev.first  # type: ignore[attr-defined]
    assert set(planned.changes) == set(made.changes) == {"create"}
    assert planned.changes == made.changes
    assert {(step.type, step.name) for step in planned.steps} == {(s.type, s.name) for s in made.steps}
    assert NOTICE in {message.text for message in planned.messages}
    assert not [message for message in (*planned.messages, *made.messages) if message.severity != "info"]
    assert not dev.run("up").changed
    assert not dev.run("refresh").changed
    assert not dev.run("preview").changed


def test_karpenter_has_what_the_stack_says(dev: World) -> None:
    items = json.loads(dev.kubectl("get", KINDS, "-o", "json"))["items"]
    assert Counter(item["kind"] for item in items) == {"NodePool": 1, "EC2NodeClass": 1, "NodeOverlay": 1}
    (pool,) = (item for item in items if item["kind"] == "NodePool")
    assert pool["spec"]["limits"] == {"cpu": "16", "nvidia.com/gpu.shared": "12"}
    read = json.loads(dev.kubectl("get", "configmap", "-n", "kube-system", "karpenter-values", "-o", "json"))
    assert json.loads(read["data"]["values"])["settings"]["clusterName"] == "aws-dev"


def test_elastic_nodes_are_let_in_with_the_evidence(dev: World) -> None:
    """The workloads run, so a node was admitted; its other taints are still there."""
    noted = r"jsonpath={.metadata.annotations.gpuform\.io/gpu-ready}"
    dev.kubectl("wait", "nodes", "-l", "gpuform.io/pool=g4dn-shared", f"--for={noted}", "--timeout=60s")
    items = json.loads(dev.kubectl("get", "nodes", "-l", "gpuform.io/pool=g4dn-shared", "-o", "json"))[
        "items"
    ]
    assert len(items) == 2
    for node in items:
        assert [taint["key"] for taint in node["spec"]["taints"]] == ["nvidia.com/gpu"]
        evidence = json.loads(node["metadata"]["annotations"]["gpuform.io/gpu-ready"])
        assert evidence["offers"] == {"nvidia.com/gpu.shared": 3}
        assert set(evidence["operands"]) == {"nvidia-device-plugin-daemonset", "nvidia-operator-validator"}


POOL = ("pools", 0)
NETWORK = {
    *(f"network-{name}" for name in ("vpc", "public", "public-internet", "endpoints", "endpoints-https")),
    *(f"network-{name}" for name in ("s3", "ec2", "ecr-api", "ecr-dkr", "sts", "nat-us-east-1a")),
    *(f"network-public-us-east-1{zone}" for zone in "ab"),
    *(f"network-private-us-east-1{zone}" for zone in "ab"),
    *(f"network-private-us-east-1{zone}-nat" for zone in "ab"),
}
CHANGES: dict[str, tuple[Edit, dict[str, set[str]]]] = {
    "AMI of elastic nodes": (
        put("cluster", "images", "al2023-nvidia", value="al2023@v20260901"),
        {"update": {"elastic-class-g4dn-shared"}},
    ),
    "AMI of system nodes": (
        put("cluster", "images", "al2023", value="al2023@v20260901"),
        {"update": {"system-system"}},
    ),
    "taint": (
        put(*POOL, "taints", value=[{"key": "work", "value": "notebooks"}]),
        {
            "update": {
                "elastic-pool-g4dn-shared",
                "gpu-operator-release",  # its operands must tolerate it
                "workloads-examples-tensorflow",
            }
        },
    ),
    "replicas": (
        put(*POOL, "sharing", "replicas", value=4),
        {
            "replace": {"sharing-device-plugin"},  # its name has the content's hash
            "update": {
                "elastic-overlay-g4dn-shared-1-gpu",
                "elastic-pool-g4dn-shared",
                "gpu-operator-release",
                "monitoring-recorded-rules",  # they contain the number of shares of a GPU
            },
        },
    ),
    "limits": (
        put(*POOL, "elastic", "max", value={"cpu": 20, "nvidia.com/gpu.shared": 12}),
        {"update": {"elastic-pool-g4dn-shared"}},
    ),
    "CIDR": (
        put("cluster", "network", "cidr", value="10.30.0.0/16"),
        {
            # A node group cannot move to other subnets; a gateway and the control plane are updated.
            "replace": {*NETWORK, "system-system"},
            "update": {"network-internet", "aws-dev-cluster"},
        },
    ),
    "version": (
        put("cluster", "version", value="1.35"),
        {
            "update": {
                *("aws-dev-cluster", "system-system", "add-ons-aws-ebs-csi-driver", "add-ons-coredns"),
                *("node-add-ons-eks-node-monitoring-agent", "node-add-ons-eks-pod-identity-agent"),
                *("node-add-ons-kube-proxy", "node-add-ons-vpc-cni"),
            }
        },
    ),
    "system nodes": (put("cluster", "system", "nodes", value=3), {"update": {"system-system"}}),
    "who reaches it": (
        put("cluster", "endpoint", "public_cidrs", value=["198.51.100.0/24"]),
        {"update": {"aws-dev-cluster"}},
    ),
    "closed to the outside": (
        put("cluster", "endpoint", "public_cidrs", value=[]),
        {
            "update": {"aws-dev-cluster"},
            "create": {"network-eks", "network-eks-auth", "network-sqs", "network-ssm"},
        },
    ),
    "administrators": (
        put("cluster", "admins", value=[]),
        {"delete": {"aws-dev-admin-111122223333:role/gpu-admins"}},
    ),
}


@pytest.mark.parametrize(("edit", "expected"), nightly_but("replicas", CHANGES))
def test_a_change_reaches_exactly_what_it_must(dev: World, edit: Edit, expected: dict[str, set[str]]) -> None:
    with dev.changed(edit):
        planned = dev.engine.preview("aws-dev", lambda event: None, acknowledged=[REPORT])
        assert touched(planned) == expected
        losses = [message.text for message in planned.messages if "not acknowledged" in message.text]
        assert bool(losses) == ("replace" in expected and edit is CHANGES["CIDR"][0]), losses


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["AMI of elastic nodes", "taint", "replicas", "limits"])
def test_a_change_is_made_as_planned_and_taken_back(dev: World, name: str) -> None:
    """Karpenter would replace nodes with outdated labels or taints; here the nodes are updated."""
    edit, expected = CHANGES[name]
    with dev.changed(edit):
        dev.nodes()
        assert touched(dev.run("up")) == expected
        assert not dev.run("preview").changed
    dev.nodes()
    assert touched(dev.run("up")) == expected


LAST_THINGS_FIRST = (
    "Deployment workloads-examples-tensorflow",
    "NodePool elastic-pool-g4dn-shared",
    "EC2NodeClass elastic-class-g4dn-shared",
    "Release karpenter-controller",
    "PodIdentityAssociation karpenter-controller",
    "NodeGroup system-system",
    "AccessEntry aws-dev-admin-111122223333:role/gpu-admins",
    "Cluster aws-dev-cluster",
    "Subnet network-private-us-east-1a",
    "Vpc network-vpc",
)


def test_nothing_is_left_after_destroy(dev: World) -> None:
    """By plain `pulumi destroy`, which keeps Karpenter until it has deleted its nodes."""
    planned, _ = dev.first  # type: ignore[attr-defined]
    karpenter = PlayedKarpenter(dev.checkout.paths.kubeconfig, dev.kubectl)
    karpenter.launch("g4dn-shared", 1)
    ended: list[str] = []
    left: list[str] = []

    def follow(event: Event) -> None:
        if isinstance(event, Step) and event.op == "delete" and event.phase == "done":
            ended.append(f"{event.type.rpartition(':')[2]} {event.name}")
            if event.name == "elastic-pool-g4dn-shared":
                left.extend(dev.kubectl("get", "nodeclaims", "-o", "name").split())

    with karpenter.living():
        gone = dev.engine.destroy("aws-dev", follow)
    assert left == [], "the NodePool was gone before its NodeClaims"
    places = [ended.index(name) for name in LAST_THINGS_FIRST]
    assert places == sorted(places)
    assert gone.changes == {"delete": planned.changes["create"]}
    assert not dev.engine.export("aws-dev")["deployment"].get("resources")


EXISTING = {
    "vpc": "vpc-0123456789abcdef0",
    "subnets": {"tags": {"tier": "private"}, "zones": ["us-west-2a", "us-west-2b", "us-west-2c"]},
}


@pytest.mark.nightly
def test_production_is_planned_made_and_stays(tmp_path_factory: pytest.TempPathFactory) -> None:
    with world(tmp_path_factory.mktemp("prod"), "aws-prod") as prod:
        with prod.changed(put("cluster", "network", value=EXISTING)):
            inside = prod.run("preview")
            assert set(inside.changes) == {"create"}
            assert not {"aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet"} & {step.type for step in inside.steps}
        planned, made = prod.run("preview"), prod.run("up")
        assert planned.changes == made.changes
        assert set(made.changes) == {"create"}
        items = json.loads(prod.kubectl("get", KINDS, "-o", "json"))["items"]
        assert Counter(item["kind"] for item in items)["NodePool"] == 5
        nodes = json.loads(prod.kubectl("get", "nodes", "-l", "gpuform.io/pool=a100-mig", "-o", "json"))
        for node in nodes["items"]:
            assert node["status"]["allocatable"]["nvidia.com/mig-3g.20gb"] == "8"
            assert node["status"]["allocatable"]["nvidia.com/mig-2g.10gb"] == "16"
            assert node["status"]["nodeInfo"]["bootID"] == "1", "it rebooted once: MIG mode needs a reset"
        _training_has_ended(prod)
        assert not prod.run("up").changed
        assert not prod.run("refresh").changed
        assert prod.run("destroy").changes == {"delete": made.changes["create"]}


def _training_has_ended(prod: World) -> None:
    """On nodes whose adapters and huge pages its pods were given."""
    prod.kubectl("wait", "job/training", "-n", "science", "--for=condition=Complete", "--timeout=120s")
    nodes = json.loads(prod.kubectl("get", "nodes", "-l", "gpuform.io/pool=h100-training", "-o", "json"))
    for node in nodes["items"]:
        there = node["status"]["allocatable"]
        assert (there["vpc.amazonaws.com/efa"], there["hugepages-2Mi"]) == ("32", "10Gi")
    selector = "app.kubernetes.io/name=training"
    pods = json.loads(prod.kubectl("get", "pods", "-n", "science", "-l", selector, "-o", "json"))["items"]
    assert {pod["spec"]["hostname"] for pod in pods} == {"training-0", "training-1"}
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 2
    for pod in pods:
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert (limits["vpc.amazonaws.com/efa"], limits["hugepages-2Mi"]) == ("32", "5Gi")
        volumes = {one["name"]: one["emptyDir"] for one in pod["spec"]["volumes"]}
        assert volumes["shm"] == {"medium": "Memory", "sizeLimit": "64Gi"}


@pytest.mark.nightly
def test_the_official_plugin_plans_the_same(tmp_path: Path) -> None:
    if shutil.which("pulumi-resource-aws") is None:
        pytest.skip("pulumi-resource-aws is not on this machine")
    if "AWS_ACCESS_KEY_ID" not in os.environ and "AWS_PROFILE" not in os.environ:
        pytest.skip("no AWS credentials in the environment: the official plugin asks who is calling")
    with world(tmp_path, "aws-dev") as made:
        offline = made.run("preview")
        real = Engine(made.checkout.paths, made.tools, say=made.said.append)
        planned = real.preview("aws-dev", on_event=lambda event: None)
        assert {(s.type, s.name, s.op) for s in planned.steps} == {
            (s.type, s.name, s.op) for s in offline.steps
        }


@pytest.mark.nightly
def test_by_hand_without_an_account(tmp_path: Path) -> None:
    """After `gpuform local env --offline`, Pulumi itself previews the stack."""
    with world(tmp_path, "aws-dev") as made:
        lines = made.checkout.gpuform("local", "env", "aws-dev", "--offline").stdout
        script = f"{lines}\npulumi preview --color never"
        command = ["bash", "-euc", script]
        done = subprocess.run(command, cwd=made.checkout.paths.root, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert NOTICE in done.stdout
        assert "131 to create" in done.stdout
