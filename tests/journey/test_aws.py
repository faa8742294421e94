"""Both AWS stacks, offline: previewed, created, unchanged, changed as required, refreshed and destroyed.

Then aws-dev with a pool of claimed GPUs, beside the time-sliced one; charts/dra-driver-sim is the DRA driver.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.engine import Engine, Event, Result, Step
from infra.model.base.guard_names import REPORT
from lab.offline.aws.provider import NOTICE
from tests.journey.aws_world import World, world
from tests.stack.destroy.played_karpenter import PlayedKarpenter

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
    assert not dev.run("refresh").changed
    assert not dev.run("up").changed


def test_karpenter_has_what_the_stack_says(dev: World) -> None:
    items = json.loads(dev.kubectl("get", KINDS, "-o", "json"))["items"]
    assert Counter(item["kind"] for item in items) == {"NodePool": 1, "EC2NodeClass": 1, "NodeOverlay": 1}
    (pool,) = (item for item in items if item["kind"] == "NodePool")
    assert pool["spec"]["limits"] == {"cpu": "16", "nvidia.com/gpu.shared": "12"}
    read = json.loads(dev.kubectl("get", "configmap", "-n", "kube-system", "karpenter-values", "-o", "json"))
    assert json.loads(read["data"]["values"])["settings"]["clusterName"] == "aws-dev"


@pytest.mark.nightly
def test_a_node_pool_changed_by_hand_is_restored(dev: World) -> None:
    def limits() -> Any:
        return json.loads(dev.kubectl("get", "nodepools", "-o", "json"))["items"][0]["spec"]["limits"]

    before = limits()
    name = dev.kubectl("get", "nodepools", "-o", "name").strip()
    dev.kubectl("patch", name, "--type=merge", "-p", json.dumps({"spec": {"limits": {"cpu": "1"}}}))
    dev.run("refresh")
    dev.run("up")
    assert limits() == before


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


MORE_SHARES = put("pools", 0, "sharing", "replicas", value=4)
REACHED = {
    "replace": {"sharing-device-plugin"},  # its name has the content's hash
    "update": {
        "elastic-overlay-g4dn-shared-1-gpu",
        "elastic-pool-g4dn-shared",
        "gpu-operator-release",
        "monitoring-recorded-rules",  # they contain the number of shares of a GPU
    },
}


def test_a_change_reaches_exactly_what_it_must(dev: World) -> None:
    """The comments in pull_requests_aws have other changes, lab/offline/aws what replaces a resource."""
    with dev.changed(MORE_SHARES):
        planned = dev.engine.preview("aws-dev", lambda event: None, acknowledged=[REPORT])
        assert touched(planned) == REACHED
        assert not [message for message in planned.messages if "not acknowledged" in message.text]


@pytest.mark.nightly
def test_a_change_is_made_as_planned_and_taken_back(dev: World) -> None:
    """Karpenter would replace nodes with outdated labels or taints; here the nodes are updated."""
    with dev.changed(MORE_SHARES):
        dev.nodes()
        assert touched(dev.run("up")) == REACHED
        assert not dev.run("preview").changed
    dev.nodes()
    assert touched(dev.run("up")) == REACHED


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


@pytest.mark.nightly
def test_production_is_planned_made_and_stays(tmp_path_factory: pytest.TempPathFactory) -> None:
    with world(tmp_path_factory.mktemp("prod"), "aws-prod") as prod:
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
    """On nodes with the adapters and huge pages that its pods were given."""
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


POOL = {"name": "claimed", "machine": "g6.12xlarge", "nodes": 2, "sharing": {"kind": "dra"}}
WORK = {"name": "train", "namespace": "examples", "kind": "deployment", "replicas": 2, "count": 2,
        "pool": "claimed", "image": "tensorflow/tensorflow:2.12.0-gpu"}  # fmt: skip


def add(environment: dict[str, Any]) -> None:
    environment["pools"].append(dict(POOL))
    environment["workloads"].append(dict(WORK))


@pytest.fixture(scope="module")
def claims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("claims"), "aws-dev") as made, made.changed(add):
        made.nodes()
        made.first = made.run("preview"), made.run("up")  # type: ignore[attr-defined]
        yield made


@pytest.mark.nightly
def test_a_pool_with_claims_is_made_as_planned_and_stays(claims: World) -> None:
    planned, made = claims.first  # type: ignore[attr-defined]
    assert set(made.changes) == {"create"}
    assert planned.changes == made.changes
    assert not claims.run("up").changed
    assert not claims.run("refresh").changed


@pytest.mark.nightly
def test_karpenter_keeps_its_number_and_the_device_plugin_is_off_its_nodes(claims: World) -> None:
    spec = json.loads(claims.kubectl("get", "nodepool", "claimed-static", "-o", "json"))["spec"]
    assert (spec["replicas"], spec["limits"]) == (2, {"nodes": "3"})
    values = json.loads(claims.kubectl("get", "cm", "-n", "kube-system", "karpenter-values", "-o", "json"))
    assert json.loads(values["data"]["values"])["settings"]["featureGates"]["staticCapacity"] is True
    for item in json.loads(claims.kubectl("get", "nodes", "-l", "gpuform.io/pool=claimed", "-o", "json"))[
        "items"
    ]:
        offered = {
            key: n for key, n in item["status"]["allocatable"].items() if key.startswith("nvidia.com/")
        }
        assert set(offered.values()) <= {"0"}, offered
        assert item["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-L4", "discovery runs there"


@pytest.mark.nightly
def test_status_says_what_is_had_by_claim(claims: World) -> None:
    message = json.loads(claims.checkout.gpuform("status", "aws-dev", "--json").stdout)
    pools = {pool["name"]: pool for pool in message["pools"]}
    assert pools["claimed"]["sharing"] == "dra"
    nodes = pools["claimed"]["nodes"]
    assert [node["allocatable"].get("gpu.nvidia.com") for node in nodes] == [4, 4]
    assert sum(node["used"].get("gpu.nvidia.com", 0) for node in nodes) == 4
    table = claims.checkout.gpuform("status", "aws-dev").stdout
    assert "dra: whole GPUs by claim" in " ".join(table.split())


@pytest.mark.nightly
def test_another_number_moves_the_workload_to_another_template(claims: World) -> None:
    def one(environment: dict[str, Any]) -> None:
        environment["workloads"][-1]["count"] = 1

    with claims.changed(one):
        steps = {(step.op, step.name) for step in claims.run("up").steps}
        assert ("create", "workloads-examples-train-1-gpu") in steps
        assert ("update", "workloads-examples-train") in steps
        assert ("delete", "workloads-examples-train-2-gpu") in steps
        found = json.loads(claims.kubectl("get", "resourceclaimtemplates", "-n", "examples", "-o", "json"))[
            "items"
        ]
        assert [item["metadata"]["name"] for item in found] == ["train-1-gpu"]
        assert not claims.run("preview").changed


@pytest.mark.nightly
def test_a_pool_with_claims_ends_with_a_destroy(claims: World) -> None:
    ended = claims.run("destroy")
    assert set(ended.changes) == {"delete"}
    assert claims.kubectl("get", "deployments,resourceclaims", "-n", "examples", "-o", "name") == ""
