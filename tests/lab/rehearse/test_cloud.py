"""The played AWS, called as Karpenter calls it: what it sells and refuses, and how nodes are created."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.clients.aws.api import create_client
from infra.config import load
from infra.model.base import labels
from infra.model.base.prices import PriceList
from lab.rehearse.cloud.market import Shortage
from lab.rehearse.cloud.server import Cloud
from tests.lab.rehearse.fake_cluster import FakeCluster
from tests.model.test_own import on_aws
from tests.waiting import until

pytestmark = pytest.mark.tools

REGION = "us-west-2"
STACK = Path(__file__).parents[3] / "Pulumi.aws-prod.yaml"
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
    with Cloud(load(STACK), PriceList(), plane, join_s=0.0) as result:
        yield result


@pytest.fixture
def ec2(cloud: Cloud) -> Any:
    return create_client("ec2", REGION)


def template(ec2: Any, name: str = "template", reservation: str | None = None, adapters: int = 0) -> str:
    data: dict[str, Any] = {"UserData": base64.b64encode(USER_DATA.encode()).decode()}
    if adapters:
        kinds = ["interface", *["efa-only"] * adapters]
        data["NetworkInterfaces"] = [
            {"DeviceIndex": i, "InterfaceType": kind} for i, kind in enumerate(kinds)
        ]
    if reservation:
        target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
        data["CapacityReservationSpecification"] = target
    ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)
    return name


def fleet(ec2: Any, template: str, *kinds: tuple[str, str], count: int = 1, spot: bool = False) -> Any:
    subnets = {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in ec2.describe_subnets()["Subnets"]}
    image = ec2.register_image(Name=f"image-{time.monotonic_ns()}", Architecture="x86_64")["ImageId"]
    return ec2.create_fleet(
        Type="instant",
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": template, "Version": "$Latest"},
                "Overrides": [
                    {
                        "InstanceType": machine,
                        "AvailabilityZone": zone,
                        "SubnetId": subnets[zone],
                        "ImageId": image,
                    }
                    for machine, zone in kinds
                ],
            }
        ],
        TargetCapacitySpecification={
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": "spot" if spot else "on-demand",
        },
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": "gpuform.io/pool", "Value": "l40s-inference"}]}
        ],
    )


def test_sells_a_type_that_the_environment_declares(plane: FakeCluster) -> None:
    env = on_aws({"machine": "x9.24xlarge", "elastic": {"max": {"cpu": 960}}})
    with Cloud(env, PriceList(), plane, join_s=0.0) as cloud:
        ec2 = create_client("ec2", REGION)
        (result,) = ec2.describe_instance_types(InstanceTypes=["x9.24xlarge"])["InstanceTypes"]
        assert result["VCpuInfo"]["DefaultVCpus"] == 96
        assert result["GpuInfo"]["Gpus"][0]["Count"] == 4
        every = ec2.describe_instance_types(Filters=[])["InstanceTypes"]
        assert {"x9.24xlarge", "g6e.xlarge"} <= {item["InstanceType"] for item in every}
        sold = fleet(ec2, template(ec2), ("x9.24xlarge", "us-west-2a"))
        assert [instance["InstanceType"] for instance in sold["Instances"]] == ["x9.24xlarge"]
        assert cloud.market.instances()[0].usd_per_hour == 30.0
        until(lambda: cloud.market.instances()[0].node)
        (node,) = plane.applied
        assert "NVIDIA X1" in node["metadata"]["annotations"][labels.SIM_GPU_MODEL]


BOTH = (("g6e.2xlarge", "us-west-2a"), ("g6e.xlarge", "us-west-2b"))


def test_sells_the_cheapest_that_there_is(cloud: Cloud, ec2: Any) -> None:
    sold = fleet(ec2, template(ec2), *BOTH, count=2)
    assert [(instance["InstanceType"], len(instance["InstanceIds"])) for instance in sold["Instances"]] == [
        ("g6e.xlarge", 2)
    ]
    assert sold["Errors"] == []
    assert [
        (instance.machine, instance.zone, instance.capacity, instance.pool)
        for instance in cloud.market.instances()
    ] == [("g6e.xlarge", "us-west-2b", "on-demand", "l40s-inference")] * 2
    assert cloud.market.instances()[0].usd_per_hour == 1.861  # AWS's price of 2026-07-20 in us-east-1


@pytest.mark.parametrize(
    ("short", "bought", "refused"),
    [
        (Shortage(machine="g6e.xlarge"), "g6e.2xlarge", "g6e.xlarge"),
        (Shortage(zone="us-west-2b"), "g6e.2xlarge", "g6e.xlarge"),
        (Shortage(capacity="spot"), "g6e.xlarge", None),
        (Shortage(), None, "g6e.xlarge"),
    ],
)
def test_what_is_short_is_refused_and_the_next_is_sold(
    cloud: Cloud, ec2: Any, short: Shortage, bought: str | None, refused: str | None
) -> None:
    cloud.market.set_shortages(short)
    sold = fleet(ec2, template(ec2), *BOTH)
    assert [instance["InstanceType"] for instance in sold["Instances"]] == ([bought] if bought else [])
    errors = [
        (error["ErrorCode"], error["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"])
        for error in sold["Errors"]
    ]
    assert errors[:1] == ([("InsufficientInstanceCapacity", refused)] if refused else [])
    assert [refusal.machine for refusal in cloud.market.refusals()][:1] == ([refused] if refused else [])


def test_a_reservation_is_used_up_and_given_back(cloud: Cloud, ec2: Any) -> None:
    (held,) = cloud.market.reservations
    assert (held.machine, held.zone, held.total) == ("p5.48xlarge", "us-west-2b", 4)
    cloud.market.set_left(held.id, left=1)
    name = template(ec2, reservation=held.id)
    sold = fleet(ec2, name, ("p5.48xlarge", "us-west-2b"), count=2)
    (id,) = sold["Instances"][0]["InstanceIds"]
    (listed,) = ec2.describe_capacity_reservations(CapacityReservationIds=[held.id])["CapacityReservations"]
    assert (listed["AvailableInstanceCount"], listed["State"]) == (0, "active")
    (result,) = ec2.describe_instances(InstanceIds=[id])["Reservations"][0]["Instances"]
    assert result["CapacityReservationId"] == held.id
    again = fleet(ec2, name, ("p5.48xlarge", "us-west-2b"))
    assert [error["ErrorCode"] for error in again["Errors"]] == ["ReservationCapacityExceeded"]
    ec2.terminate_instances(InstanceIds=[id])
    until(lambda: cloud.market.reservations[0].left == 1)


def test_an_instance_joins_as_its_user_data_says(cloud: Cloud, ec2: Any, plane: FakeCluster) -> None:
    fleet(ec2, template(ec2, adapters=2), ("g6e.xlarge", "us-west-2a"), spot=True)
    until(lambda: cloud.market.instances()[0].node)
    node = plane.applied[0]
    assert node["metadata"]["labels"]["karpenter.sh/nodepool"] == "l40s-inference-spot"
    assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "us-west-2a"
    assert node["spec"]["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}]
    assert node["metadata"]["annotations"]["simulator.gpuform.io/pods"] == "50"
    assert node["metadata"]["annotations"]["simulator.gpuform.io/gpu-count"] == "1"
    assert node["metadata"]["annotations"]["simulator.gpuform.io/efa"] == "2"
    assert node["spec"]["providerID"] == f"aws:///us-west-2a/{cloud.market.instances()[0].id}"
    assert not any(name.startswith("nvidia.com/") for name in node["metadata"]["labels"])


def test_spot_is_warned_of_taken_back_and_its_node_goes(cloud: Cloud, ec2: Any, plane: FakeCluster) -> None:
    sold = fleet(ec2, template(ec2), ("g6e.xlarge", "us-west-2a"), spot=True)
    (id,) = sold["Instances"][0]["InstanceIds"]
    (result,) = ec2.describe_instances(InstanceIds=[id])["Reservations"][0]["Instances"]
    assert result["InstanceLifecycle"] == "spot"
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
    types = {
        instance_type["InstanceType"] for instance_type in ec2.describe_instance_types()["InstanceTypes"]
    }
    assert types <= set(prices)
    assert {"g4dn.xlarge", "p5.48xlarge", "m6i.4xlarge"} <= types
    history = ec2.describe_spot_price_history()["SpotPriceHistory"]
    of_one = {item["AvailabilityZone"] for item in history if item["InstanceType"] == "g6e.xlarge"}
    assert of_one == {"us-west-2a", "us-west-2b", "us-west-2c"}
