"""The simulated AWS, called as Karpenter calls it: what it sells and refuses, how nodes join, its subnets."""

from __future__ import annotations

import base64
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.clients.aws.api import create_client
from infra.config import load, parse
from infra.model.base import labels
from infra.model.base.prices import PriceList
from infra.plan import karpenter
from lab.offline.aws.functions import assumed_subnet
from lab.rehearse.cloud import account
from lab.rehearse.cloud.account import create_account
from lab.rehearse.cloud.instances import Instances
from lab.rehearse.cloud.market import Shortage
from lab.rehearse.cloud.server import Cloud, aws_environment
from tests.build.aws_stacks import small
from tests.config.tables import GOOD
from tests.lab.rehearse.fake_cluster import FakeCluster
from tests.waiting import until

pytestmark = pytest.mark.tools

REGION = "us-west-2"
SIM = "simulator.gpuform.io/"
STACK = load(Paths.here().root / "Pulumi.aws-prod.yaml")
USER_DATA = """\
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="//"

--//
Content-Type: application/node.eks.aws

apiVersion: node.eks.aws/v1alpha1
kind: NodeConfig
spec:
  kubelet:
    config:
      maxPods: 50
      registerWithTaints: [{key: nvidia.com/gpu, value: "true", effect: NoSchedule}]
    flags: ['--node-labels="gpuform.io/pool=l40s-inference,karpenter.sh/nodepool=l40s-inference-spot"']

--//--
"""


@pytest.fixture
def plane() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def cloud(plane: FakeCluster) -> Iterator[Cloud]:
    with Cloud(STACK, PriceList(), plane, join_s=0.0) as result:
        yield result


@pytest.fixture
def ec2(cloud: Cloud) -> Any:
    return create_client("ec2", REGION)


def template(reservation: str | None = None, adapters: int = 0) -> dict[str, Any]:
    data: dict[str, Any] = {"UserData": base64.b64encode(USER_DATA.encode()).decode()}
    if adapters:
        kinds = ["interface", *["efa-only"] * adapters]
        data["NetworkInterfaces"] = [
            {"DeviceIndex": i, "InterfaceType": kind} for i, kind in enumerate(kinds)
        ]
    if reservation:
        target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
        data["CapacityReservationSpecification"] = target
    return data


def fleet(ec2: Any, data: dict[str, Any], *kinds: tuple[str, str], count: int = 1, spot: bool = False) -> Any:
    """Request instances of the first of these machines and zones that there is."""
    name = f"at-{time.monotonic_ns()}"
    ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    subnets = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]}
    image = ec2.register_image(Name=name, Architecture="x86_64")["ImageId"]
    options = [
        {"InstanceType": machine, "AvailabilityZone": zone, "SubnetId": subnets[zone], "ImageId": image}
        for machine, zone in kinds
    ]
    chosen = {"LaunchTemplateName": name, "Version": "$Latest"}
    tags = [{"Key": "gpuform.io/pool", "Value": "l40s-inference"}]
    return ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[{"LaunchTemplateSpecification": chosen, "Overrides": options}],
        TargetCapacitySpecification={
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )


def described(ec2: Any, id: str) -> dict[str, Any]:
    (found,) = ec2.describe_instances(InstanceIds=[id])["Reservations"][0]["Instances"]
    result: dict[str, Any] = found
    return result


def test_a_declared_machine_is_sold(plane: FakeCluster) -> None:
    own = {"gpu": "A100-64GB", "count": 4, "vcpu": 96, "memory_gib": 512, "pods": 737, "usd_per_hour": 30.0}
    pool = {"name": "p0", "machine": "x9.24xlarge", "elastic": {"max": {"cpu": 960}}}
    env = parse({**small(pool), "gpus": GOOD["own"]["gpus"], "machines": {"x9.24xlarge": own}})
    with Cloud(env, PriceList(), plane, join_s=0.0) as cloud:
        ec2 = create_client("ec2", REGION)
        (result,) = ec2.describe_instance_types(InstanceTypes=["x9.24xlarge"])["InstanceTypes"]
        assert result["VCpuInfo"]["DefaultVCpus"] == 96
        assert result["GpuInfo"]["Gpus"][0]["Count"] == 4
        every = ec2.describe_instance_types(Filters=[])["InstanceTypes"]
        assert {"x9.24xlarge", "g6e.xlarge"} <= {item["InstanceType"] for item in every}
        sold = fleet(ec2, template(), ("x9.24xlarge", "us-west-2a"))
        assert [instance["InstanceType"] for instance in sold["Instances"]] == ["x9.24xlarge"]
        assert cloud.market.instances()[0].usd_per_hour == 30.0
        until(lambda: cloud.market.instances()[0].node)
        (node,) = plane.applied
        assert "NVIDIA A100-SXM-64GB" in node["metadata"]["annotations"][labels.SIM_GPU_MODEL]


BOTH = (("g6e.2xlarge", "us-west-2a"), ("g6e.xlarge", "us-west-2b"))


def test_the_cheapest_available_machine_is_sold(cloud: Cloud, ec2: Any) -> None:
    sold = fleet(ec2, template(), *BOTH, count=2)
    assert [(item["InstanceType"], len(item["InstanceIds"])) for item in sold["Instances"]] == [
        ("g6e.xlarge", 2)
    ]
    assert sold["Errors"] == []
    bought = [(item.machine, item.zone, item.capacity, item.pool) for item in cloud.market.instances()]
    assert bought == [("g6e.xlarge", "us-west-2b", "on-demand", "l40s-inference")] * 2
    assert cloud.market.instances()[0].usd_per_hour == 1.861  # AWS's price of 2026-07-20 in us-east-1


@pytest.mark.parametrize(
    ("short", "bought", "refused"),
    [
        (Shortage(machine="g6e.xlarge"), ["g6e.2xlarge"], ["g6e.xlarge"]),
        (Shortage(zone="us-west-2b"), ["g6e.2xlarge"], ["g6e.xlarge"]),
        (Shortage(capacity="spot"), ["g6e.xlarge"], []),
        (Shortage(), [], ["g6e.xlarge"]),
    ],
    ids=str,
)
def test_a_machine_that_is_short_is_refused_and_the_next_is_sold(
    cloud: Cloud, ec2: Any, short: Shortage, bought: list[str], refused: list[str]
) -> None:
    cloud.market.set_shortages(short)
    sold = fleet(ec2, template(), *BOTH)
    assert [instance["InstanceType"] for instance in sold["Instances"]] == bought
    errors = [
        (error["ErrorCode"], error["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"])
        for error in sold["Errors"]
    ]
    assert errors[:1] == [("InsufficientInstanceCapacity", machine) for machine in refused]
    assert [refusal.machine for refusal in cloud.market.refusals()][:1] == refused


def test_a_reservation_is_used_up_and_given_back(cloud: Cloud, ec2: Any) -> None:
    (held,) = cloud.market.reservations
    place = (held.machine, held.zone)
    assert (*place, held.total) == ("p5.48xlarge", "us-west-2b", 4)
    cloud.market.set_left(held.id, left=1)
    sold = fleet(ec2, template(held.id), place, count=2)
    (id,) = sold["Instances"][0]["InstanceIds"]
    (listed,) = ec2.describe_capacity_reservations(CapacityReservationIds=[held.id])["CapacityReservations"]
    assert (listed["AvailableInstanceCount"], listed["State"]) == (0, "active")
    assert described(ec2, id)["CapacityReservationId"] == held.id
    again = fleet(ec2, template(held.id), place)
    assert [error["ErrorCode"] for error in again["Errors"]] == ["ReservationCapacityExceeded"]
    ec2.terminate_instances(InstanceIds=[id])
    until(lambda: cloud.market.reservations[0].left == 1)


def test_an_instance_joins_as_its_user_data_says(cloud: Cloud, ec2: Any, plane: FakeCluster) -> None:
    fleet(ec2, template(adapters=2), ("g6e.xlarge", "us-west-2a"), spot=True)
    until(lambda: cloud.market.instances()[0].node)
    meta, spec = plane.applied[0]["metadata"], plane.applied[0]["spec"]
    assert meta["labels"]["karpenter.sh/nodepool"] == "l40s-inference-spot"
    assert meta["labels"]["topology.kubernetes.io/zone"] == "us-west-2a"
    assert spec["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    assert [meta["annotations"][f"{SIM}{key}"] for key in ("pods", "gpu-count", "efa")] == ["50", "1", "2"]
    assert spec["providerID"] == f"aws:///us-west-2a/{cloud.market.instances()[0].id}"
    assert not any(name.startswith("nvidia.com/") for name in meta["labels"])


def test_a_spot_instance_is_warned_and_reclaimed_and_its_node_goes(
    cloud: Cloud, ec2: Any, plane: FakeCluster
) -> None:
    sold = fleet(ec2, template(), ("g6e.xlarge", "us-west-2a"), spot=True)
    (id,) = sold["Instances"][0]["InstanceIds"]
    assert described(ec2, id)["InstanceLifecycle"] == "spot"
    assert cloud.market.instances()[0].usd_per_hour == pytest.approx(1.861 * 0.5)  # the stack's spot_factor
    node = until(lambda: cloud.market.instances()[0].node)
    cloud.interrupt(id, notice_s=0.5)
    sqs = create_client("sqs", REGION)
    url = sqs.get_queue_url(QueueName="aws-prod")["QueueUrl"]
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert json.loads(message["Body"])["detail"] == {"instance-id": id, "instance-action": "terminate"}
    until(lambda: cloud.market.instances()[0].ended)
    until(lambda: (f"/api/v1/nodes/{node}", None) in plane.requests)


def test_an_alias_is_an_image_of_its_architecture(cloud: Cloud, ec2: Any) -> None:
    name = "/aws/service/eks/optimized-ami/1.34/amazon-linux-2023/x86_64/nvidia/x-v20260801/image_id"
    ssm = create_client("ssm", REGION)
    result = {ssm.get_parameter(Name=name)["Parameter"]["Value"] for _ in range(2)}
    (image,) = ec2.describe_images(ImageIds=list(result))["Images"]
    assert image["Architecture"] == "x86_64"


def test_prices_and_types_are_those_of_the_catalogue(cloud: Cloud, ec2: Any) -> None:
    rows = create_client("pricing", REGION).get_products(ServiceCode="AmazonEC2")["PriceList"]
    prices = {
        row["product"]["attributes"]["instanceType"]: row["terms"]["OnDemand"]["1"]["priceDimensions"]["1"]
        for row in map(json.loads, rows)
    }
    assert prices["p5.48xlarge"]["pricePerUnit"] == {"USD": "55.04"}
    types = {item["InstanceType"] for item in ec2.describe_instance_types()["InstanceTypes"]}
    assert {"g4dn.xlarge", "p5.48xlarge", "m6i.4xlarge"} <= types <= set(prices)
    history = ec2.describe_spot_price_history()["SpotPriceHistory"]
    of_one = {item["AvailabilityZone"] for item in history if item["InstanceType"] == "g6e.xlarge"}
    assert of_one == {"us-west-2a", "us-west-2b", "us-west-2c"}


@pytest.fixture
def simple_cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    """Without moto's state."""
    monkeypatch.setattr(Cloud, "_reset", lambda self: None)
    monkeypatch.setattr(account, "create_account", lambda env: None)
    monkeypatch.setattr(Instances, "_running", lambda self: {})
    return Cloud(STACK, PriceList(), FakeCluster())


def test_a_start_that_fails_leaves_no_server_and_no_variables(
    simple_cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no queue")

    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setattr(account, "create_account", broken)
    before, threads = dict(os.environ), set(threading.enumerate())
    with pytest.raises(RuntimeError, match="no queue"), simple_cloud:
        pass
    assert dict(os.environ) == before
    until(lambda: set(threading.enumerate()) <= threads)  # those of other tests may end meanwhile


def test_the_server_and_its_variables_last_as_long_as_the_context(simple_cloud: Cloud) -> None:
    before, threads = dict(os.environ), threading.active_count()
    with simple_cloud as cloud:
        assert os.environ["AWS_ENDPOINT_URL"] == cloud.url
        assert threading.active_count() == threads + 2
        with socket.create_connection(("127.0.0.1", int(cloud.url.rpartition(":")[2])), timeout=5):
            pass
    assert dict(os.environ) == before
    until(lambda: threading.active_count() == threads)


def test_nothing_of_the_callers_own_aws_or_proxy_is_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_EC2"):
        monkeypatch.setenv(name, "mine")
    monkeypatch.setenv("NO_PROXY", "intern")
    monkeypatch.delenv("no_proxy", raising=False)
    before = dict(os.environ)
    with aws_environment({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}):
        assert {name for name in os.environ if name.startswith("AWS_")} == {"AWS_ENDPOINT_URL"}
        assert (os.environ["NO_PROXY"], os.environ["no_proxy"]) == ("intern,127.0.0.1", "127.0.0.1")
    assert dict(os.environ) == before


VPC = "vpc-0123456789abcdef0"
IDS = {f"us-west-2{letter}": f"subnet-0123456789abcde{letter}0" for letter in "abc"}
TAGS = {"tier": "private", "team": "gpu"}
ELASTIC = {"name": "t4", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 16}}}


@pytest.mark.parametrize("subnets", [IDS, {"tags": TAGS, "zones": list(IDS)}], ids=["by id", "by tag"])
def test_subnets_of_an_existing_vpc_have_the_ids_in_karpenters_class(
    moto: str, subnets: dict[str, Any]
) -> None:
    """The offline AWS plugin answers for the subnets of tags, and the account has what it answered.

    None has a tag to discover it by, as at AWS, where the owner has not tagged them.
    """
    env = parse(small(ELASTIC, network={"vpc": VPC, "subnets": subnets}))
    create_account(env)
    found = discovered(Name="vpc-id", Values=[VPC])
    assert found == (IDS if subnets is IDS else {zone: assumed_subnet(VPC, zone, TAGS) for zone in IDS})
    spec = karpenter.ec2_node_class(env, env.pools[0], "role", env.name, found)["spec"]
    assert sorted(term["id"] for term in spec["subnetSelectorTerms"]) == sorted(found.values())
    assert discovered(Name="tag:karpenter.sh/discovery", Values=["*"]) == {}


def test_subnets_of_a_new_vpc_are_found_by_tag(moto: str) -> None:
    create_account(parse(small(ELASTIC)))
    result = discovered(Name="tag:karpenter.sh/discovery", Values=["labs"])
    assert result.keys() == IDS.keys()
    assert not {*result.values()} & {*IDS.values()}


def discovered(**filtered: Any) -> dict[str, str]:
    listed = create_client("ec2", REGION).describe_subnets(Filters=[filtered])["Subnets"]
    return {item["AvailabilityZone"]: item["SubnetId"] for item in listed}
