from __future__ import annotations

import base64
import tomllib
from email import message_from_string
from typing import Any

import pytest
import yaml

from lab.offline.aws.provider import row
from tests.build.aws_stacks import small, stack
from tests.fakes.recorder import Recorder, record_once

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
AMI = "ami-0123456789abcdef0"
RESERVED: dict[str, Any] = {"reservations": ["cr-0123456789abcdef0"]}
POOL: dict[str, Any] = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 2}

pytestmark = pytest.mark.unit


def group(recorded: Recorder, name: str = "mng-t4") -> dict[str, Any]:
    (inputs,) = [r.inputs for r in recorded.of(NODE_GROUP) if r.name == name]
    return inputs


def template(recorded: Recorder, name: str = "mng-t4") -> dict[str, Any]:
    (inputs,) = [r.inputs for r in recorded.of(TEMPLATE) if r.name == name]
    return inputs


def user_data(recorded: Recorder) -> str:
    return base64.b64decode(template(recorded)["userData"]).decode()


@pytest.mark.parametrize("name", ["aws-dev", "aws-prod"])
def test_no_pod_reaches_a_nodes_credentials_and_every_volume_is_encrypted_and_tagged(name: str) -> None:
    recorded = record_once(stack(name))
    assert len(recorded.of(TEMPLATE)) == len(recorded.of(NODE_GROUP)) > 0
    for r in recorded.of(TEMPLATE):
        options = r.inputs["metadataOptions"]
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)
        for device in r.inputs["blockDeviceMappings"]:
            assert (device["ebs"]["encrypted"], device["ebs"]["volumeType"]) == ("true", "gp3")
        tagged = {item["resourceType"]: item["tags"] for item in r.inputs["tagSpecifications"]}
        pays = {"gpuform.io/environment": name, **stack(name)["cluster"].get("tags", {})}
        assert all(pays.items() <= tagged[kind].items() for kind in ("instance", "volume"))
    for r in recorded.of("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"):
        options = r.inputs["spec"]["metadataOptions"]
        assert (options["httpTokens"], options["httpPutResponseHopLimit"]) == ("required", 1)


@pytest.mark.parametrize("name", ["aws-dev", "aws-prod"])
def test_every_pool_has_its_label_and_its_taint_whoever_makes_its_nodes(name: str) -> None:
    recorded, environment = record_once(stack(name)), stack(name)
    groups = {r.inputs["labels"]["gpuform.io/pool"]: r.inputs for r in recorded.of(NODE_GROUP)}
    elastic: dict[str, Any] = {}
    for node_pool in recorded.of("kubernetes:karpenter.sh/v1:NodePool"):
        part = node_pool.inputs["spec"]["template"]
        elastic.setdefault(part["metadata"]["labels"]["gpuform.io/pool"], part["spec"].get("taints", []))
    for pool in environment["pools"]:
        gpu = "gpu" in pool or not pool["machine"].startswith("m")
        pool_taints = [taint["key"] for taint in pool.get("taints", [])]
        expected = (["nvidia.com/gpu"] if gpu else []) + pool_taints
        if "nodes" in pool:
            waits = ["gpuform.io/gpu-not-ready"] if gpu else []
            assert [taint["key"] for taint in groups[pool["name"]].get("taints", [])] == expected + waits
            assert groups[pool["name"]]["scalingConfig"]["desiredSize"] == pool["nodes"]
        else:
            assert [taint["key"] for taint in elastic[pool["name"]]] == expected
    system = {"key": "CriticalAddonsOnly", "value": "true", "effect": "NO_SCHEDULE"}
    assert groups["system"]["taints"] == [system]


ALIASES = {"al2023": "al2023@v20260801", "al2023-nvidia": "al2023@v20260801"}
ALIASES["bottlerocket-nvidia"] = "bottlerocket@1.50.0"


@pytest.mark.parametrize(
    ("image", "kind", "parameter"),
    [
        ("al2023-nvidia", "AL2023_x86_64_NVIDIA",
         "amazon-eks-node-al2023-x86_64-nvidia-1.34-v20260801/release_version"),
        ("bottlerocket-nvidia", "BOTTLEROCKET_x86_64_NVIDIA",
         "aws-k8s-1.34-nvidia/x86_64/1.50.0/image_version"),
    ],
)  # fmt: skip
def test_an_alias_is_a_release_that_eks_knows(image: str, kind: str, parameter: str) -> None:
    images = {name: pin for name, pin in ALIASES.items() if name in ("al2023", image)}
    recorded = record_once(small({**POOL, "aws": {"image": image}}, images=images))
    assert group(recorded)["amiType"] == kind
    assert group(recorded)["releaseVersion"].endswith(parameter)
    assert "imageId" not in template(recorded)
    if image == "al2023-nvidia":
        assert "NodeConfig" not in user_data(recorded)  # EKS configures the node
        assert "userData" not in template(recorded, "system-system")


def test_new_user_data_replaces_neither_template_nor_group() -> None:
    """The template gets a new version in place, to which EKS updates the group's nodes; see test_table.py."""
    recorded = record_once(small(POOL))
    assert "nvidia-ctk config" in user_data(recorded)
    assert "userData" not in row(TEMPLATE).replaces
    assert {"launchTemplate", "launchTemplate.version"}.isdisjoint(row(NODE_GROUP).replaces)
    assert "version" in group(recorded)["launchTemplate"]


def test_an_ami_id_is_launched_as_it_is_and_its_nodes_are_told_everything() -> None:
    images = {"al2023": "al2023@v20260801", "al2023-nvidia": AMI}
    pool = {**POOL, "sharing": {"kind": "time_slicing", "replicas": 4}, "aws": {"max_pods": 29}}
    recorded = record_once(small(pool, images=images))
    assert group(recorded)["amiType"] == "CUSTOM"
    assert "releaseVersion" not in group(recorded)
    assert template(recorded)["imageId"] == AMI
    archive = message_from_string(user_data(recorded))
    texts = [str(part.get_payload()) for part in archive.walk() if not part.is_multipart()]
    assert texts.pop(1).startswith("#!/bin/bash\nnvidia-ctk config ")
    parts = [yaml.safe_load(text) for text in texts]
    assert [part["kind"] for part in parts] == ["NodeConfig", "NodeConfig"]
    assert parts[0]["spec"]["kubelet"]["config"] == {"maxPods": 29}
    spec = parts[1]["spec"]
    assert spec["cluster"] == {
        "name": "labs",
        "apiServerEndpoint": "https://ABCDEF.gr7.us-west-2.eks.amazonaws.com",
        "certificateAuthority": "Q0E=",
        "cidr": "172.20.0.0/16",
    }
    node_labels, taints = spec["kubelet"]["flags"]
    assert "gpuform.io/pool=t4" in node_labels
    assert "nvidia.com/device-plugin.config=slice-4" in node_labels
    startup_taints = "nvidia.com/gpu=true:NoSchedule,gpuform.io/gpu-not-ready=:NoSchedule"
    assert taints == f"--register-with-taints={startup_taints}"


@pytest.mark.parametrize("aws", [{}, {"max_pods": 29, "pod_pids_limit": 4096}], ids=["bare", "with settings"])
def test_a_bottlerocket_ami_id_gets_one_toml_table_of_each_name(aws: dict[str, Any]) -> None:
    images = {"al2023": "al2023@v20260801", "bottlerocket-nvidia": AMI}
    pool = {**POOL, "aws": {"image": "bottlerocket-nvidia", **aws}}
    recorded = record_once(small(pool, images=images))
    settings = tomllib.loads(user_data(recorded))["settings"]["kubernetes"]
    assert settings["cluster-name"] == "labs"
    assert settings["api-server"].startswith("https://")
    assert settings["node-labels"]["gpuform.io/pool"] == "t4"
    assert settings["node-taints"] == {
        "nvidia.com/gpu": ["true:NoSchedule"],
        "gpuform.io/gpu-not-ready": [":NoSchedule"],
    }
    assert settings.get("max-pods") == aws.get("max_pods")
    devices = template(recorded)["blockDeviceMappings"]
    assert [device["deviceName"] for device in devices] == ["/dev/xvda", "/dev/xvdb"]


def test_fabric_adapters_on_every_card_and_the_nodes_close_together() -> None:
    aws = {"efa": True, "placement_group": True}
    pool = {**POOL, "machine": "p5.48xlarge", "zones": ["us-west-2b"], "aws": aws}
    recorded = record_once(small(pool))
    interfaces = template(recorded)["networkInterfaces"]
    adapters = [interface for interface in interfaces if interface["interfaceType"] == "efa-only"]
    indices = [(interface["networkCardIndex"], interface["deviceIndex"]) for interface in adapters]
    assert indices == [(0, 1), *((card, 0) for card in range(1, 32))]
    assert {tuple(interface["securityGroups"]) for interface in interfaces} == {("sg-cluster",)}
    assert recorded.one("aws:ec2/placementGroup:PlacementGroup").inputs["strategy"] == "cluster"
    assert template(recorded)["placement"]["groupName"] == "mng-t4"
    assert group(recorded)["subnetIds"] == ["network-private-us-west-2b-id"]
    (plugin,) = [r.inputs for r in recorded.of("kubernetes:helm.sh/v3:Release") if r.name == "efa-release"]
    assert plugin["values"]["supportedInstanceLabels"] == {"keys": ["gpuform.io/pool"], "values": ["t4"]}
    assert plugin["values"]["tolerations"][0]["key"] == "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("capacity", "aws", "kind"),
    [
        (["on_demand"], {}, "ON_DEMAND"),
        (["spot"], {}, "SPOT"),
        (["reserved"], RESERVED, "ON_DEMAND"),
        (["reserved"], {**RESERVED, "capacity_block": True}, "CAPACITY_BLOCK"),
    ],
)
def test_each_way_of_buying_nodes(capacity: list[str], aws: dict[str, Any], kind: str) -> None:
    recorded = record_once(small({**POOL, "capacity": capacity, "aws": aws}))
    assert group(recorded)["capacityType"] == kind
    target = template(recorded).get("capacityReservationSpecification", {})
    expected = {"capacityReservationId": RESERVED["reservations"][0]} if aws else None
    assert target.get("capacityReservationTarget") == expected
    block = kind == "CAPACITY_BLOCK"
    assert ("instanceMarketOptions" in template(recorded)) is block
    assert template(recorded).get("instanceType") == ("g4dn.xlarge" if block else None)
    assert group(recorded).get("instanceTypes") == (None if block else ["g4dn.xlarge"])


@pytest.mark.parametrize("block", [False, True])
def test_a_reserved_group_never_needs_a_place_beside_its_nodes(block: bool) -> None:
    """terraform-provider-aws#41442: EKS starts new nodes first, and a full reservation has no place."""
    aws = {**RESERVED, "capacity_block": block}
    reserved = record_once(small({**POOL, "capacity": ["reserved"], "aws": aws}))
    assert group(reserved)["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
    (resource,) = [r for r in reserved.of(NODE_GROUP) if r.name == "mng-t4"]
    assert resource.request.deleteBeforeReplace
    others = [r for r in record_once(small(POOL)).of(NODE_GROUP)]
    assert all(r.inputs["updateConfig"] == {"maxUnavailable": 1} for r in others)
    assert not any(r.request.deleteBeforeReplace for r in others)


def test_a_node_group_may_be_empty() -> None:
    """EKS takes 0 as the present and the least number of nodes, but not as the most."""
    sizes = group(record_once(small({**POOL, "nodes": 0})))["scalingConfig"]
    assert sizes == {"desiredSize": 0, "minSize": 0, "maxSize": 1}


def test_a_node_group_with_bounds_starts_with_its_nodes_and_keeps_the_size_that_others_give_it() -> None:
    record = record_once(small({**POOL, "nodes": 2, "aws": {"scaling": {"min": 0, "max": 6}}}))
    assert group(record)["scalingConfig"] == {"desiredSize": 2, "minSize": 0, "maxSize": 6}
    (bounded,) = [r for r in record.of(NODE_GROUP) if r.name == "mng-t4"]
    assert list(bounded.request.ignoreChanges) == ["scalingConfig.desiredSize"]
    fixed = [r for r in record.of(NODE_GROUP) if r is not bounded]
    assert [bool(r.request.ignoreChanges) for r in fixed] == [False]  # the system nodes
