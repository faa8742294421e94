"""An AWS account (moto) with a cluster's leftovers, and with foreign resources."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpuform.clients.aws.api import create_client
from tests.clouds.aws.seeded import tag_specification

REGION = "us-east-1"


@dataclass
class Account:
    """One VPC of a cluster and a foreign one, with a subnet in each."""

    cluster: str
    ec2: Any = field(default_factory=lambda: create_client("ec2", REGION))

    def __post_init__(self) -> None:
        self.vpc, self.subnet = self._vpc("10.20.0.0/16", {"gpuform.io/environment": self.cluster})
        self.other_vpc, self.other_subnet = self._vpc("10.99.0.0/16", {"gpuform.io/environment": "elsewhere"})

    @property
    def karpenter_tags(self) -> dict[str, str]:
        return {f"kubernetes.io/cluster/{self.cluster}": "owned", "eks:eks-cluster-name": self.cluster}

    def _vpc(self, cidr: str, tags: dict[str, str]) -> tuple[str, str]:
        made = self.ec2.create_vpc(CidrBlock=cidr, TagSpecifications=tag_specification("vpc", tags))
        vpc, block = made["Vpc"]["VpcId"], cidr.replace("/16", "/24")
        return vpc, self.ec2.create_subnet(VpcId=vpc, CidrBlock=block)["Subnet"]["SubnetId"]

    def interface(self, tags: dict[str, str], description: str = "", subnet: str = "") -> str:
        answer = self.ec2.create_network_interface(
            SubnetId=subnet or self.subnet,
            Description=description,
            TagSpecifications=tag_specification("network-interface", tags),
        )
        return str(answer["NetworkInterface"]["NetworkInterfaceId"])

    def cni_interface(self, cluster: str = "", subnet: str = "") -> str:
        """An interface as the VPC CNI creates it, and leaves it if its node is deleted too quickly."""
        tags = {
            "cluster.k8s.amazonaws.com/name": cluster or self.cluster,
            "node.k8s.amazonaws.com/instance_id": "i-0123456789abcdef0",
            "eks:eni:owner": "amazon-vpc-cni",
        }
        return self.interface(tags, "aws-K8S-i-0123456789abcdef0", subnet)

    def instance(self, tags: dict[str, str], subnet: str = "") -> str:
        answer = self.ec2.run_instances(
            ImageId="ami-12345678",
            MinCount=1,
            MaxCount=1,
            NetworkInterfaces=[primary(subnet or self.subnet)],
            TagSpecifications=tag_specification("instance", tags),
        )
        return str(answer["Instances"][0]["InstanceId"])

    def group(self, name: str, tags: dict[str, str], vpc: str = "") -> str:
        answer = self.ec2.create_security_group(
            GroupName=name,
            Description=name,
            VpcId=vpc or self.vpc,
            TagSpecifications=tag_specification("security-group", tags),
        )
        return str(answer["GroupId"])

    def allow_ingress(self, group: str, other: str) -> None:
        """A rule of ``group`` that names ``other``: neither can be deleted before the rule."""
        rule = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": other}]}
        self.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[rule])

    def interfaces(self) -> set[str]:
        found = self.ec2.describe_network_interfaces()["NetworkInterfaces"]
        return {interface["NetworkInterfaceId"] for interface in found}

    def groups(self) -> set[str]:
        return {group["GroupId"] for group in self.ec2.describe_security_groups()["SecurityGroups"]}

    def running(self) -> set[str]:
        launched = self.ec2.describe_instances()["Reservations"]
        instances = [instance for reservation in launched for instance in reservation["Instances"]]
        return {one["InstanceId"] for one in instances if one["State"]["Name"] != "terminated"}


def primary(subnet: str) -> dict[str, Any]:
    """An instance's primary interface, deleted with it: the default of EC2, but not of moto."""
    return {"DeviceIndex": 0, "SubnetId": subnet, "DeleteOnTermination": True}
