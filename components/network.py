"""The VPC of an EKS cluster, if the stack creates it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, vpc

from infra.model import labels
from infra.model.addresses import Subnets, subnets
from infra.model.aws import AwsCluster
from infra.model.aws_network import OwnNetwork
from infra.plan.network import interface_endpoints

ANYWHERE = "0.0.0.0/0"
"""Only ever a route's destination; no security group rule allows it."""


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """The declared cluster; Karpenter and load balancers find the subnets by ``cluster_name``.

    ``protect``: the engine refuses to delete or replace the VPC.
    """

    cluster: AwsCluster
    network: OwnNetwork
    cluster_name: str
    protect: bool


class Network(pulumi.ComponentResource):
    """Public and private subnets in every zone, NAT, and endpoints for the AWS services that nodes call."""

    vpc_id: pulumi.Output[str]
    private_subnets: Mapping[str, pulumi.Output[str]]
    """Subnet ids by zone."""

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:Network", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._vpc = ec2.Vpc(
            f"{name}-vpc",
            cidr_block=args.network.cidr,
            enable_dns_hostnames=True,  # endpoints with private DNS names require both
            enable_dns_support=True,
            tags={"Name": args.cluster_name},
            opts=pulumi.ResourceOptions(parent=self, protect=args.protect),
        )
        planned = subnets(args.network)
        public = {zone.zone: self._public_subnet(zone) for zone in planned}
        private = {zone.zone: self._private_subnet(zone) for zone in planned}
        gateway = self._internet_gateway()
        nat = self._nat(public, gateway)
        tables = [self._public_routes(public, gateway), *self._private_routes(private, nat)]
        self._endpoints(private, tables)
        self.vpc_id = self._vpc.id
        self.private_subnets = {zone: subnet.id for zone, subnet in private.items()}
        self.register_outputs({"vpc_id": self.vpc_id, "private_subnets": self.private_subnets})

    def _public_subnet(self, zone: Subnets) -> ec2.Subnet:
        return ec2.Subnet(
            f"{self._name}-public-{zone.zone}",
            vpc_id=self._vpc.id,
            availability_zone=zone.zone,
            cidr_block=zone.public,
            map_public_ip_on_launch=False,  # only NAT and load balancers, which bring their own
            tags={"Name": f"{self._args.cluster_name}-public-{zone.zone}", labels.ELB: "1"},
            opts=self._child,
        )

    def _private_subnet(self, zone: Subnets) -> ec2.Subnet:
        return ec2.Subnet(
            f"{self._name}-private-{zone.zone}",
            vpc_id=self._vpc.id,
            availability_zone=zone.zone,
            cidr_block=zone.private,
            map_public_ip_on_launch=False,
            tags={
                "Name": f"{self._args.cluster_name}-private-{zone.zone}",
                labels.INTERNAL_ELB: "1",
                labels.KARPENTER_DISCOVERY: self._args.cluster_name,
            },
            opts=self._child,
        )

    def _internet_gateway(self) -> ec2.InternetGateway:
        return ec2.InternetGateway(
            f"{self._name}-internet",
            vpc_id=self._vpc.id,
            tags={"Name": self._args.cluster_name},
            opts=self._child,
        )

    def _nat(
        self, public: Mapping[str, ec2.Subnet], gateway: ec2.InternetGateway
    ) -> dict[str, ec2.NatGateway]:
        """The gateway by zone: its own, or that of the first zone for all."""
        zones = list(public)
        per_zone = self._args.network.nat == "per_zone"
        gateways = {}
        # EC2 refuses a NAT gateway in a VPC without an internet gateway.
        opts = pulumi.ResourceOptions(parent=self, depends_on=[gateway])
        for zone in zones if per_zone else zones[:1]:
            tags = {"Name": f"{self._args.cluster_name}-{zone}"}
            address = ec2.Eip(f"{self._name}-nat-{zone}", domain="vpc", tags=tags, opts=opts)
            gateways[zone] = ec2.NatGateway(
                f"{self._name}-nat-{zone}",
                allocation_id=address.allocation_id,
                subnet_id=public[zone].id,
                tags=tags,
                opts=opts,
            )
        return {zone: gateways[zone if per_zone else zones[0]] for zone in zones}

    def _public_routes(
        self, public: Mapping[str, ec2.Subnet], gateway: ec2.InternetGateway
    ) -> ec2.RouteTable:
        tags = {"Name": f"{self._args.cluster_name}-public"}
        table = ec2.RouteTable(f"{self._name}-public", vpc_id=self._vpc.id, tags=tags, opts=self._child)
        ec2.Route(
            f"{self._name}-public-internet",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=gateway.id,
            opts=self._child,
        )
        for zone, subnet in public.items():
            self._associate(f"public-{zone}", table, subnet)
        return table

    def _private_routes(
        self, private: Mapping[str, ec2.Subnet], nat: Mapping[str, ec2.NatGateway]
    ) -> list[ec2.RouteTable]:
        """One table per zone, even with one shared gateway: giving each its own then changes routes only."""
        tables = []
        for zone, subnet in private.items():
            table = ec2.RouteTable(
                f"{self._name}-private-{zone}",
                vpc_id=self._vpc.id,
                tags={"Name": f"{self._args.cluster_name}-private-{zone}"},
                opts=self._child,
            )
            ec2.Route(
                f"{self._name}-private-{zone}-nat",
                route_table_id=table.id,
                destination_cidr_block=ANYWHERE,
                nat_gateway_id=nat[zone].id,
                opts=self._child,
            )
            self._associate(f"private-{zone}", table, subnet)
            tables.append(table)
        return tables

    def _associate(self, role: str, table: ec2.RouteTable, subnet: ec2.Subnet) -> None:
        ec2.RouteTableAssociation(
            f"{self._name}-{role}", route_table_id=table.id, subnet_id=subnet.id, opts=self._child
        )

    def _endpoints(self, private: Mapping[str, ec2.Subnet], tables: list[ec2.RouteTable]) -> None:
        cluster, service = self._args.cluster, f"com.amazonaws.{self._args.cluster.region}"
        ec2.VpcEndpoint(
            f"{self._name}-s3",
            vpc_id=self._vpc.id,
            vpc_endpoint_type="Gateway",  # costs nothing, and every layer of an ECR image comes from S3
            service_name=f"{service}.s3",
            route_table_ids=[table.id for table in tables],
            tags={"Name": f"{self._args.cluster_name}-s3"},
            opts=self._child,
        )
        group = ec2.SecurityGroup(
            f"{self._name}-endpoints",
            vpc_id=self._vpc.id,
            description="AWS services from inside the VPC",
            tags={"Name": f"{self._args.cluster_name}-endpoints"},
            opts=self._child,
        )
        vpc.SecurityGroupIngressRule(
            f"{self._name}-endpoints-https",
            security_group_id=group.id,
            description="HTTPS from the VPC",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ipv4=self._args.network.cidr,
            opts=self._child,
        )
        for endpoint in interface_endpoints(cluster):
            ec2.VpcEndpoint(
                f"{self._name}-{endpoint.replace('.', '-')}",
                vpc_id=self._vpc.id,
                vpc_endpoint_type="Interface",
                service_name=f"{service}.{endpoint}",
                private_dns_enabled=True,
                subnet_ids=[subnet.id for subnet in private.values()],
                security_group_ids=[group.id],
                tags={"Name": f"{self._args.cluster_name}-{endpoint}"},
                opts=self._child,
            )
