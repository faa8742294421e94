"""The VPC of an EKS cluster: the stack's own, or one that exists already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2
from pulumi_aws.vpc.security_group_ingress_rule import SecurityGroupIngressRule

from infra.model.aws.cluster import AwsCluster
from infra.model.aws.network import ExistingNetwork, OwnNetwork
from infra.model.base import labels
from infra.model.pool.addresses import subnets
from infra.plan.eks import interface_endpoints

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
        public = {
            zone.zone: self._subnet("public", zone.zone, zone.public, {labels.ELB: "1"}) for zone in planned
        }
        tags = {labels.INTERNAL_ELB: "1", labels.KARPENTER_DISCOVERY: args.cluster_name}
        private = {zone.zone: self._subnet("private", zone.zone, zone.private, tags) for zone in planned}
        gateway = ec2.InternetGateway(
            f"{name}-internet", vpc_id=self._vpc.id, tags={"Name": args.cluster_name}, opts=self._child
        )
        nat = self._nat(public, gateway)
        tables = [self._table("public", "internet", public, gateway_id=gateway.id)]
        # One table per zone, even with one shared gateway: giving each its own then changes routes only.
        tables += [
            self._table(f"private-{zone}", "nat", {zone: subnet}, nat_gateway_id=nat[zone].id)
            for zone, subnet in private.items()
        ]
        self._endpoints(private, tables)
        self.vpc_id = self._vpc.id
        self.private_subnets = {zone: subnet.id for zone, subnet in private.items()}
        self.register_outputs({"vpc_id": self.vpc_id, "private_subnets": self.private_subnets})

    def _subnet(self, kind: str, zone: str, cidr: str, tags: Mapping[str, str]) -> ec2.Subnet:
        return ec2.Subnet(
            f"{self._name}-{kind}-{zone}",
            vpc_id=self._vpc.id,
            availability_zone=zone,
            cidr_block=cidr,
            map_public_ip_on_launch=False,  # only NAT and load balancers, which bring their own
            tags={"Name": f"{self._args.cluster_name}-{kind}-{zone}", **tags},
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

    def _table(
        self, role: str, route_name: str, subnets: Mapping[str, ec2.Subnet], **gateway: pulumi.Output[str]
    ) -> ec2.RouteTable:
        """The route table of these subnets, with a route to the gateway."""
        name, tags = f"{self._name}-{role}", {"Name": f"{self._args.cluster_name}-{role}"}
        table = ec2.RouteTable(name, vpc_id=self._vpc.id, tags=tags, opts=self._child)
        route = ec2.RouteArgs(route_table_id=table.id, destination_cidr_block=ANYWHERE, **gateway)
        ec2.Route(f"{name}-{route_name}", route, self._child)
        for zone, subnet in subnets.items():
            link = f"{self._name}-{role.partition('-')[0]}-{zone}"
            ec2.RouteTableAssociation(link, route_table_id=table.id, subnet_id=subnet.id, opts=self._child)
        return table

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
        SecurityGroupIngressRule(
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


@dataclass(frozen=True, kw_only=True)
class ExistingVpcArgs:
    """The declared VPC and subnets."""

    network: ExistingNetwork


class ExistingVpc(pulumi.ComponentResource):
    """A VPC and one private subnet per zone; the stack creates, changes and deletes nothing in it."""

    vpc_id: pulumi.Output[str]
    private_subnets: Mapping[str, pulumi.Output[str]]
    """Subnet ids by zone."""

    def __init__(self, name: str, args: ExistingVpcArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:ExistingVpc", name, None, opts)
        self._network = network = args.network
        self.vpc_id = pulumi.Output.from_input(network.vpc)
        ids = {zone: pulumi.Output.from_input(subnet) for zone, subnet in network.subnet_ids.items()}
        self.private_subnets = ids or {zone: self._find_by_tags(zone) for zone in network.zones}
        self.register_outputs({"vpc_id": self.vpc_id, "private_subnets": self.private_subnets})

    def _find_by_tags(self, zone: str) -> pulumi.Output[str]:
        criteria = {
            "vpc-id": self._network.vpc,
            "availability-zone": zone,
            **{f"tag:{key}": value for key, value in sorted(self._network.subnet_tags.items())},
        }
        filters = [ec2.GetSubnetsFilterArgs(name=name, values=[value]) for name, value in criteria.items()]
        result = ec2.get_subnets_output(filters=filters, opts=pulumi.InvokeOutputOptions(parent=self))
        return result.ids.apply(lambda ids: self._single_id(zone, ids))

    def _single_id(self, zone: str, ids: Sequence[str]) -> str:
        """Raises RunError unless there is exactly one: with other subnets, a node group is replaced."""
        if len(ids) == 1:
            return ids[0]
        fact = f"{', '.join(sorted(ids))} have" if ids else "no subnet has"
        raise pulumi.RunError(
            f"cluster.network.subnets.tags: in {zone} of {self._network.vpc} {fact} these tags; "
            "name each zone's subnet by its id"
        )
