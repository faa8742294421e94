"""Network (own or existing), control plane and Karpenter's AWS resources, as registered."""

from __future__ import annotations

import ipaddress
import json
from typing import Any

import pulumi
import pytest
import yaml

from components.network import ExistingVpc
from infra.config import parse, price_list
from infra.model.aws.network import ExistingNetwork
from infra.plan import cost
from infra.plan.render import render
from tests.build.aws_stacks import BY_ID, BY_TAG, SUBNETS, VPC, changed, small, stack
from tests.fakes.recorder import Recorder, record, record_once

pytestmark = pytest.mark.unit

GPU = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1}
ELASTIC = {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 100}}}
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"


@pytest.fixture(scope="module")
def dev() -> Recorder:
    return record_once(stack("aws-dev"))


@pytest.fixture(scope="module")
def prod() -> Recorder:
    return record_once(stack("aws-prod"))


@pytest.mark.parametrize(("nat", "gateways"), [("single", "aaa"), ("per_zone", "abc")])
def test_every_private_subnet_has_a_table_of_its_own_with_the_right_way_out(nat: str, gateways: str) -> None:
    environment = small(GPU)
    environment["cluster"]["network"]["nat"] = nat
    recorded = record(environment)
    for kind in ("aws:ec2/natGateway:NatGateway", "aws:ec2/eip:Eip"):
        assert len(recorded.of(kind)) == len(set(gateways))
    associated = {
        r.inputs["subnetId"]: r.inputs["routeTableId"]
        for r in recorded.of("aws:ec2/routeTableAssociation:RouteTableAssociation")
    }
    routes = {r.inputs["routeTableId"]: r.inputs for r in recorded.of("aws:ec2/route:Route")}
    assert len(associated) == 6
    for letter, gateway in zip("abc", gateways, strict=True):
        subnet = f"network-private-us-west-2{letter}-id"
        assert associated[subnet] == subnet
        assert routes[subnet]["natGatewayId"] == f"network-nat-us-west-2{gateway}-id"
        public = associated[f"network-public-us-west-2{letter}-id"]
        assert routes[public]["gatewayId"] == "network-internet-id"


def test_subnets_lie_apart_in_the_vpc_and_are_found_by_their_tags(prod: Recorder) -> None:
    subnets = {r.name: r.inputs for r in prod.of("aws:ec2/subnet:Subnet")}
    assert len(subnets) == 6
    vpc = ipaddress.ip_network(prod.one("aws:ec2/vpc:Vpc").inputs["cidrBlock"])
    cidrs = [ipaddress.ip_network(inputs["cidrBlock"]) for inputs in subnets.values()]
    assert all(cidr.subnet_of(vpc) for cidr in cidrs)  # type: ignore[arg-type]
    assert not [(a, b) for a in cidrs for b in cidrs if a is not b and a.overlaps(b)]
    for name, inputs in subnets.items():
        assert inputs["mapPublicIpOnLaunch"] is False
        discovery = inputs["tags"].get("karpenter.sh/discovery")
        if "private" in name:
            assert discovery == "aws-prod"
            assert inputs["tags"]["kubernetes.io/role/internal-elb"] == "1"
        else:
            assert discovery is None  # a node there would need a public address
            assert inputs["tags"]["kubernetes.io/role/elb"] == "1"


def test_endpoints_of_a_private_and_of_a_public_cluster() -> None:
    private = record_once(small(GPU))
    public = record_once(small(GPU, endpoint={"public_cidrs": ["192.0.2.0/24"]}))
    services = {r.inputs["serviceName"].removeprefix("com.amazonaws.us-west-2.") for r in public.of(ENDPOINT)}
    assert services == {"s3", "ec2", "ecr.api", "ecr.dkr", "sts"}
    names = {r.inputs["serviceName"].removeprefix("com.amazonaws.us-west-2.") for r in private.of(ENDPOINT)}
    assert names - services == {"eks", "eks-auth", "sqs", "ssm"}
    gateway = next(r for r in private.of(ENDPOINT) if r.inputs["vpcEndpointType"] == "Gateway")
    assert len(gateway.inputs["routeTableIds"]) == 4
    for endpoint in private.of(ENDPOINT):
        if endpoint.inputs["vpcEndpointType"] == "Interface":
            assert endpoint.inputs["privateDnsEnabled"] is True
            assert len(endpoint.inputs["subnetIds"]) == 3


@pytest.mark.parametrize("name", ["aws-dev", "aws-prod"])
def test_nothing_is_open_to_everyone(name: str) -> None:
    open_to_all = [
        r for r in record_once(stack(name)).resources if {"0.0.0.0/0", "::/0"} & set(_strings(r.inputs))
    ]
    assert {r.type for r in open_to_all} == {"aws:ec2/route:Route"}


def vpc_config(recorded: Recorder) -> dict[str, Any]:
    config: dict[str, Any] = recorded.one("aws:eks/cluster:Cluster").inputs["vpcConfig"]
    assert all("private" in subnet for subnet in config.pop("subnetIds"))
    return config


def test_control_plane_is_encrypted_logged_and_open_as_declared(prod: Recorder, dev: Recorder) -> None:
    inputs = prod.one("aws:eks/cluster:Cluster").inputs
    assert inputs["name"] == "aws-prod"
    assert inputs["encryptionConfig"]["resources"] == ["secrets"]
    assert inputs["encryptionConfig"]["provider"]["keyArn"].endswith("aws-prod-secrets")
    logs = ["api", "audit", "authenticator", "controllerManager", "scheduler"]
    assert inputs["enabledClusterLogTypes"] == logs
    assert inputs["accessConfig"]["authenticationMode"] == "API"
    assert inputs["bootstrapSelfManagedAddons"] is False
    assert prod.one("aws:kms/key:Key").inputs["enableKeyRotation"] is True
    group = prod.one("aws:cloudwatch/logGroup:LogGroup").inputs
    assert (group["name"], group["retentionInDays"]) == ("/aws/eks/aws-prod/cluster", 90)
    private = {"endpointPrivateAccess": True, "endpointPublicAccess": False}
    assert vpc_config(record_once(small(GPU))) == private
    for recorded, name in ((prod, "aws-prod"), (dev, "aws-dev")):
        open_to = stack(name)["cluster"]["endpoint"]["public_cidrs"]
        assert vpc_config(recorded) == {**private, "endpointPublicAccess": True, "publicAccessCidrs": open_to}


def test_access_entries_for_admins_and_for_karpenters_nodes(prod: Recorder) -> None:
    entries = {r.inputs["principalArn"]: r.inputs["type"] for r in prod.of("aws:eks/accessEntry:AccessEntry")}
    admins = stack("aws-prod")["cluster"]["admins"]
    node_role = next(arn for arn, kind in entries.items() if kind == "EC2_LINUX")
    assert entries == {**dict.fromkeys(admins, "STANDARD"), node_role: "EC2_LINUX"}
    assert node_role.endswith("karpenter-node")
    policies = prod.of("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    assert [r.inputs["principalArn"] for r in policies] == sorted(admins)
    admin = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
    assert {r.inputs["policyArn"] for r in policies} == {admin}
    assert all(r.inputs["accessScope"] == {"type": "cluster"} for r in policies)


def test_add_ons_are_pinned_and_only_what_calls_aws_has_a_role(prod: Recorder) -> None:
    add_ons = {r.inputs["addonName"]: r.inputs for r in prod.of("aws:eks/addon:Addon")}
    assert set(add_ons) == {
        *("aws-ebs-csi-driver", "coredns", "eks-node-monitoring-agent", "eks-pod-identity-agent"),
        *("kube-proxy", "vpc-cni"),
    }
    assert all("-eksbuild." in inputs["addonVersion"] for inputs in add_ons.values())
    (identity,) = add_ons["aws-ebs-csi-driver"]["podIdentityAssociations"]
    assert identity["serviceAccount"] == "ebs-csi-controller-sa"
    assert [name for name in add_ons if "podIdentityAssociations" in add_ons[name]] == ["aws-ebs-csi-driver"]


@pytest.mark.parametrize(("max_pods", "prefixes"), [(29, False), (110, True)])
def test_more_pods_than_addresses_need_prefix_delegation(max_pods: int, prefixes: bool) -> None:
    recorded = record_once(small({**GPU, "aws": {"max_pods": max_pods}}))
    (cni,) = [r.inputs for r in recorded.of("aws:eks/addon:Addon") if r.inputs["addonName"] == "vpc-cni"]
    assert ("ENABLE_PREFIX_DELEGATION" in cni.get("configurationValues", "")) is prefixes


def test_interruptions_reach_karpenter() -> None:
    recorded = record_once(small(ELASTIC))
    queue = recorded.one("aws:sqs/queue:Queue").inputs
    settings = (queue["name"], queue["sqsManagedSseEnabled"], queue["messageRetentionSeconds"])
    assert settings == ("labs", True, 300)
    rules = recorded.of("aws:cloudwatch/eventRule:EventRule")
    targets = recorded.of("aws:cloudwatch/eventTarget:EventTarget")
    assert len(rules) == 5
    assert {r.inputs["rule"] for r in targets} == {r.name for r in rules}
    assert {r.inputs["arn"].rpartition(":")[2] for r in targets} == {"karpenter-interruption"}
    policy = json.loads(recorded.one("aws:sqs/queuePolicy:QueuePolicy").inputs["policy"])
    assert [statement["Effect"] for statement in policy["Statement"]] == ["Allow", "Deny"]
    assert {statement["Resource"] for statement in policy["Statement"]} == {targets[0].inputs["arn"]}


def test_the_controllers_documents_have_no_place_left_open() -> None:
    recorded = record_once(small(ELASTIC))
    policies = recorded.of("aws:iam/policy:Policy")
    assert len(policies) >= 5
    for policy in policies:
        text = policy.inputs["policy"]
        assert "{" not in "".join(_strings(json.loads(text))), policy.name
        assert len(text.replace(" ", "")) <= 6144  # IAM's limit of a managed policy
    attached = recorded.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    to_controller = [r for r in attached if r.inputs["role"] == "karpenter-controller"]
    assert len(to_controller) == len(policies)
    association = recorded.one("aws:eks/podIdentityAssociation:PodIdentityAssociation").inputs
    assert (association["namespace"], association["serviceAccount"]) == ("kube-system", "karpenter")


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for item in value.values() for text in _strings(item))]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


def test_karpenters_nodes_have_the_role_that_their_class_names(prod: Recorder) -> None:
    (role,) = [r for r in prod.of("aws:iam/role:Role") if r.name == "karpenter-node"]
    terms = [{"tags": {"karpenter.sh/discovery": "aws-prod"}}]
    for r in prod.of("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"):
        assert r.inputs["spec"]["role"] == role.inputs["name"]
        assert r.inputs["spec"]["securityGroupSelectorTerms"] == terms
    tag = {"resourceId": "sg-cluster", "key": "karpenter.sh/discovery", "value": "aws-prod"}
    assert prod.one("aws:ec2/tag:Tag").inputs == tag


def test_a_new_network_moves_the_subnets_and_nothing_of_kubernetes() -> None:
    environment = stack("aws-dev")
    network = {**environment["cluster"]["network"], "cidr": "10.77.0.0/16"}
    before, after = record(environment), record(changed(environment, network=network))
    now = {(r.type, r.name): r.inputs for r in after.resources}
    moved = {r.type.split(":")[-1] for r in before.resources if now[r.type, r.name] != r.inputs}
    assert moved == {"LossGuard", "Vpc", "Subnet", "SecurityGroupIngressRule"}


NETWORK_TYPES = (
    *("aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/natGateway:NatGateway", "aws:ec2/eip:Eip"),
    *("aws:ec2/routeTable:RouteTable", "aws:ec2/route:Route", "aws:ec2/vpcEndpoint:VpcEndpoint"),
    *("aws:ec2/internetGateway:InternetGateway", "aws:ec2/routeTableAssociation:RouteTableAssociation"),
)


@pytest.fixture(scope="module", params=[BY_ID, BY_TAG], ids=["by id", "by tag"])
def existing(request: pytest.FixtureRequest) -> tuple[Recorder, dict[str, str]]:
    """The program of aws-prod in an existing VPC, and the subnets that it must use."""
    recorded = record(changed(stack("aws-prod"), network=request.param))
    subnets = (
        SUBNETS
        if request.param is BY_ID
        else {zone: f"subnet-of-{zone}-gpu-private-{VPC}" for zone in SUBNETS}
    )
    return recorded, subnets


def test_existing_vpc_gets_no_resource_and_no_tag(existing: tuple[Recorder, dict[str, str]]) -> None:
    recorded, _ = existing
    assert not [resource for kind in NETWORK_TYPES for resource in recorded.of(kind)]
    assert recorded.one("aws:ec2/tag:Tag").inputs["resourceId"] == "sg-cluster"


def test_existing_vpc_has_all_nodes_in_its_subnets(existing: tuple[Recorder, dict[str, str]]) -> None:
    recorded, subnets = existing
    assert recorded.one("aws:eks/cluster:Cluster").inputs["vpcConfig"]["subnetIds"] == list(subnets.values())
    groups = {group.name: group.inputs["subnetIds"] for group in recorded.of("aws:eks/nodeGroup:NodeGroup")}
    assert groups == {"system-system": list(subnets.values()), "mng-a100-mig": [subnets["us-west-2a"]]}


def test_existing_vpc_has_its_subnets_found_by_id(existing: tuple[Recorder, dict[str, str]]) -> None:
    """The owner need not tag them, and a subnet of another VPC with the same tags is not used."""
    recorded, subnets = existing
    classes = recorded.of("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass")
    assert classes
    for node_class in classes:
        assert node_class.inputs["spec"]["subnetSelectorTerms"] == [{"id": id} for id in subnets.values()]


def test_subnet_tags_are_looked_up_in_the_vpc_and_zone_by_zone() -> None:
    recorded = record_once(small(GPU, network=BY_TAG))
    lookups = [call.args["filters"] for call in recorded.calls if call.token.endswith(":getSubnets")]
    assert len(lookups) == 3
    for filters, zone in zip(sorted(lookups, key=str), SUBNETS, strict=True):
        assert {filter_["name"]: filter_["values"] for filter_ in filters} == {
            "vpc-id": [VPC],
            "availability-zone": [zone],
            "tag:team": ["gpu"],
            "tag:tier": ["private"],
        }


@pytest.mark.parametrize(
    ("ids", "fact"), [([], "no subnet has"), (["subnet-b", "subnet-a"], "subnet-a, subnet-b have")]
)
def test_subnet_tags_of_no_subnet_or_of_several_are_refused(ids: list[str], fact: str) -> None:
    vpc = ExistingVpc.__new__(ExistingVpc)
    vpc._network = ExistingNetwork.model_validate(BY_TAG)
    with pytest.raises(pulumi.RunError) as caught:
        vpc._single_id("us-west-2a", ids)
    assert str(caught.value) == (
        f"cluster.network.subnets.tags: in us-west-2a of {VPC} {fact} these tags; "
        "name each zone's subnet by its id"
    )


@pytest.mark.parametrize(
    ("network", "ids"),
    [(BY_ID, list(SUBNETS.values())), (BY_TAG, [f"{{subnet of {zone}}}" for zone in SUBNETS])],
)
def test_existing_vpc_is_rendered_without_a_network_of_ours(network: dict[str, Any], ids: list[str]) -> None:
    """Ids that only AWS knows are in braces."""
    files = render(parse(changed(stack("aws-prod"), network=network)))
    declared = yaml.safe_load(files["network.yaml"])
    assert declared["vpc"] == VPC
    assert declared["endpoints"] == []
    assert {"cidr", "nat"}.isdisjoint(declared)
    terms = [
        document["spec"]["subnetSelectorTerms"]
        for document in yaml.safe_load_all(files["karpenter.yaml"])
        if document.get("kind") == "EC2NodeClass"
    ]
    assert terms
    assert {str(term) for term in terms} == {str([{"id": id} for id in ids])}


def test_existing_vpc_has_no_gateways_and_endpoints_in_the_bill() -> None:
    env = parse(small(GPU, network=BY_ID))
    lines = {line.item for line in cost.bill(env, price_list(env)).lines}
    assert "control plane" in lines
    assert {"NAT gateways", "VPC endpoints"}.isdisjoint(lines)
