"""EKS managed node groups: the system nodes, and every pool with a fixed number of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, eks
from pulumi_aws.ssm.get_parameter import get_parameter_output

from components.iam_role import iam_role
from components.manifest import timeouts
from infra.model.pool.pool import Pool
from infra.plan import iam as documents
from infra.plan import karpenter, node_groups


@dataclass(frozen=True, kw_only=True)
class ManagedPool:
    """A pool with a fixed number of nodes; labels and taints are those of the group, in EKS API terms.

    ``release`` is the SSM parameter with the image's EKS release, ``image_id`` an AMI instead; ``repaired``:
    EKS may replace unhealthy nodes; ``tags`` are those of instances and volumes.
    """

    pool: Pool
    zones: Sequence[str]
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, str]]
    tags: Mapping[str, str]
    repaired: bool
    release: str | None
    image_id: str | None
    user_data: pulumi.Input[str | None]


@dataclass(frozen=True, kw_only=True)
class NodeGroupsArgs:
    """The pools, and what their nodes need of network and cluster."""

    pools: Sequence[ManagedPool]
    partition: pulumi.Input[str]
    cluster_name: pulumi.Output[str]
    security_group: pulumi.Output[str]
    subnets: Mapping[str, pulumi.Output[str]]


class NodeGroups(pulumi.ComponentResource):
    """One launch template and one node group per pool, all with one role.

    The size of a node group is the declared number of nodes; one with bounds starts with it, and what scales
    it changes it later.
    """

    def __init__(self, name: str, args: NodeGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:NodeGroups", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        policies = {f"{name}-node-{policy}": policy for policy in documents.NODE_POLICIES}
        self._role, self._policies = iam_role(f"{name}-node", documents.NODE, policies, args.partition, self)
        for managed in args.pools:
            self._group(managed, self._template(managed))
        self.register_outputs({})

    def _group(self, managed: ManagedPool, template: ec2.LaunchTemplate) -> eks.NodeGroup:
        pool, release = managed.pool, managed.release
        strategy, minutes = node_groups.update_strategy(pool), node_groups.update_minutes(pool)
        return eks.NodeGroup(
            f"{self._name}-{pool.name}",
            cluster_name=self._args.cluster_name,
            node_role_arn=self._role.arn,
            subnet_ids=[self._args.subnets[zone] for zone in managed.zones],
            ami_type=pool.image.eks_ami_type if release else "CUSTOM",
            release_version=self._parameter(release) if release else None,
            capacity_type=node_groups.capacity_type(pool),
            # EKS takes a capacity block's type from the launch template only.
            instance_types=None
            if pool.aws_settings.capacity_block
            else [machine.name for machine in pool.machines],
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            scaling_config={
                "desired_size": pool.nodes or 0,
                "min_size": pool.min_nodes,
                "max_size": pool.max_nodes or 1,  # EKS takes no 0
            },
            update_config=eks.NodeGroupUpdateConfigArgs(max_unavailable=1, update_strategy=strategy),
            node_repair_config={"enabled": managed.repaired},
            labels=managed.labels,
            taints=[eks.NodeGroupTaintArgs(**taint) for taint in managed.taints] or None,
            # Until its role has its policies, a node does not join, and its group fails.
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=self._policies,
                delete_before_replace=bool(strategy),
                ignore_changes=["scalingConfig.desiredSize"] if pool.bounds else None,
                custom_timeouts=timeouts(node_groups.CREATE_MINUTES, minutes, minutes),
            ),
        )

    def _parameter(self, parameter: str) -> pulumi.Output[str]:
        result = get_parameter_output(name=parameter, opts=pulumi.InvokeOutputOptions(parent=self))
        return result.insecure_value

    def _template(self, managed: ManagedPool) -> ec2.LaunchTemplate:
        pool, aws = managed.pool, managed.pool.aws_settings
        return ec2.LaunchTemplate(
            f"{self._name}-{pool.name}",
            update_default_version=True,
            image_id=managed.image_id,
            instance_type=pool.machines[0].name if aws.capacity_block else None,
            # A pod is one hop further away: it must not get its node's credentials.
            metadata_options={
                "http_endpoint": "enabled",
                "http_tokens": "required",
                "http_put_response_hop_limit": 1,
            },
            block_device_mappings=_volumes(pool),
            user_data=managed.user_data,
            network_interfaces=self._interfaces(pool) if aws.efa else None,
            placement=self._placement(pool) if aws.placement_group else None,
            capacity_reservation_specification=_reservation(pool),
            instance_market_options={"market_type": "capacity-block"} if aws.capacity_block else None,
            tag_specifications=[
                {"resource_type": kind, "tags": managed.tags} for kind in ("instance", "volume")
            ],
            opts=self._child,
        )

    def _interfaces(self, pool: Pool) -> list[ec2.LaunchTemplateNetworkInterfaceArgsDict]:
        """With interfaces of its own, a template must name their security group: EKS then adds none."""
        return [
            {
                "network_card_index": interface["networkCardIndex"],
                "device_index": interface["deviceIndex"],
                "interface_type": interface["interfaceType"],
                "security_groups": [self._args.security_group],
                "delete_on_termination": "true",
            }
            for interface in karpenter.network_interfaces(pool)
        ]

    def _placement(self, pool: Pool) -> ec2.LaunchTemplatePlacementArgsDict:
        group = ec2.PlacementGroup(f"{self._name}-{pool.name}", strategy="cluster", opts=self._child)
        return {"group_name": group.name}


def _volumes(pool: Pool) -> list[ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """The same volumes as on the nodes that Karpenter starts."""
    return [
        ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=device["deviceName"],
            ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                volume_size=int(device["ebs"]["volumeSize"].removesuffix("Gi")),
                volume_type=device["ebs"]["volumeType"],
                iops=device["ebs"].get("iops"),
                throughput=device["ebs"].get("throughput"),
                encrypted="true",
                delete_on_termination="true",
            ),
        )
        for device in karpenter.block_devices(pool)
    ]


def _reservation(pool: Pool) -> ec2.LaunchTemplateCapacityReservationSpecificationArgsDict | None:
    """The one reservation of a managed pool; parsing refuses more."""
    ids = pool.aws_settings.reservations
    return {"capacity_reservation_target": {"capacity_reservation_id": ids[0]}} if ids else None
