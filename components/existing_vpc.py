"""The VPC of an EKS cluster, if it exists already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2

from infra.model.aws_network import ExistingNetwork


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
        given = {zone: pulumi.Output.from_input(subnet) for zone, subnet in network.ids.items()}
        self.private_subnets = given or {zone: self._tagged(zone) for zone in network.zones}
        self.register_outputs({"vpc_id": self.vpc_id, "private_subnets": self.private_subnets})

    def _tagged(self, zone: str) -> pulumi.Output[str]:
        wanted = {
            "vpc-id": self._network.vpc,
            "availability-zone": zone,
            **{f"tag:{key}": value for key, value in sorted(self._network.tags.items())},
        }
        filters = [ec2.GetSubnetsFilterArgs(name=name, values=[value]) for name, value in wanted.items()]
        found = ec2.get_subnets_output(filters=filters, opts=pulumi.InvokeOutputOptions(parent=self))
        return found.ids.apply(lambda ids: self._only(zone, ids))

    def _only(self, zone: str, ids: Sequence[str]) -> str:
        """Raises RunError unless there is exactly one: with other subnets, a node group is replaced."""
        if len(ids) == 1:
            return ids[0]
        have = f"{', '.join(sorted(ids))} have" if ids else "no subnet has"
        raise pulumi.RunError(
            f"cluster.network.subnets.tags: in {zone} of {self._network.vpc} {have} these tags; "
            "name each zone's subnet by its id"
        )
