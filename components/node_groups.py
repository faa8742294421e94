"""EKS managed node groups: the system nodes, and every pool with a fixed number of nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_aws import ec2, eks, iam, ssm

from components.manifest import within
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan import iam as documents
from infra.plan import node_class, node_groups, sharing, tags, trust
from infra.plan.node_groups import Joining


@dataclass(frozen=True, kw_only=True)
class NodeGroupsArgs:
    """The pools, and what their nodes need of network and cluster."""

    environment: Environment
    pools: tuple[Pool, ...]
    partition: pulumi.Input[str]
    cluster_name: pulumi.Output[str]
    joining: pulumi.Output[Joining]
    security_group: pulumi.Output[str]
    subnets: Mapping[str, pulumi.Output[str]]


class NodeGroups(pulumi.ComponentResource):
    """One launch template and one node group per pool, all with one role.

    A node group never scales by itself: its size is the declared number of nodes.
    """

    def __init__(self, name: str, args: NodeGroupsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:NodeGroups", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._role, self._attached = self._node_role()
        for pool in args.pools:
            self._group(pool, self._template(pool))
        self.register_outputs({})

    def _node_role(self) -> tuple[iam.Role, list[pulumi.Resource]]:
        role = iam.Role(
            f"{self._name}-node",
            assume_role_policy=json.dumps(trust.trust_policy(trust.NODE)),
            opts=self._child,
        )
        attached: list[pulumi.Resource] = [
            iam.RolePolicyAttachment(
                f"{self._name}-node-{policy}",
                role=role.name,
                policy_arn=pulumi.Output.format("arn:{0}:iam::aws:policy/{1}", self._args.partition, policy),
                opts=self._child,
            )
            for policy in documents.NODE_POLICIES
        ]
        return role, attached

    def _group(self, pool: Pool, template: ec2.LaunchTemplate) -> eks.NodeGroup:
        env, image, block = self._args.environment, pool.image, pool.on_aws.capacity_block
        release = node_groups.release_parameter(env, pool)
        strategy, minutes = node_groups.update_strategy(pool), node_groups.update_minutes(pool)
        return eks.NodeGroup(
            f"{self._name}-{pool.name}",
            cluster_name=self._args.cluster_name,
            node_role_arn=self._role.arn,
            subnet_ids=[self._args.subnets[zone] for zone in node_groups.zones(env, pool)],
            ami_type=image.eks_ami_type if release else "CUSTOM",
            release_version=self._parameter(release) if release else None,
            capacity_type=node_groups.capacity_type(pool),
            # EKS takes a capacity block's type from the launch template only.
            instance_types=None if block else [machine.name for machine in pool.machines],
            launch_template=eks.NodeGroupLaunchTemplateArgs(
                id=template.id, version=template.latest_version.apply(str)
            ),
            scaling_config=eks.NodeGroupScalingConfigArgs(
                desired_size=pool.nodes or 0, min_size=pool.nodes or 0, max_size=pool.nodes or 0
            ),
            update_config=eks.NodeGroupUpdateConfigArgs(max_unavailable=1, update_strategy=strategy),
            node_repair_config=eks.NodeGroupNodeRepairConfigArgs(enabled=node_groups.repaired(env, pool)),
            labels=sharing.pool_labels(env, pool),
            taints=[eks.NodeGroupTaintArgs(**taint) for taint in node_groups.taints(env, pool)] or None,
            # Until its role has its policies, a node does not join, and its group fails.
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=self._attached,
                delete_before_replace=bool(strategy),
                custom_timeouts=within(node_groups.CREATE_MINUTES, minutes, minutes),
            ),
        )

    def _parameter(self, parameter: str) -> pulumi.Output[str]:
        found = ssm.get_parameter_output(name=parameter, opts=pulumi.InvokeOutputOptions(parent=self))
        return found.insecure_value

    def _template(self, pool: Pool) -> ec2.LaunchTemplate:
        env, aws = self._args.environment, pool.on_aws
        alias = node_groups.release_parameter(env, pool)
        instance_tags = tags.of_instances(env, pool)
        return ec2.LaunchTemplate(
            f"{self._name}-{pool.name}",
            update_default_version=True,
            image_id=None if alias else node_groups.cluster_of(env).images[pool.image.key],
            instance_type=pool.machines[0].name if aws.capacity_block else None,
            metadata_options=ec2.LaunchTemplateMetadataOptionsArgs(
                http_endpoint="enabled",
                http_tokens="required",
                # A pod is one hop further away: it must not get its node's credentials.
                http_put_response_hop_limit=1,
            ),
            block_device_mappings=_volumes(pool),
            user_data=node_groups.boot(env, pool) if alias else self._boot_alone(pool),
            network_interfaces=self._interfaces(pool) if aws.efa else None,
            placement=self._placement(pool) if aws.placement_group else None,
            capacity_reservation_specification=_reservation(pool),
            instance_market_options=ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
            if aws.capacity_block
            else None,
            tag_specifications=[
                ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=instance_tags)
                for kind in ("instance", "volume")
            ],
            opts=self._child,
        )

    def _boot_alone(self, pool: Pool) -> pulumi.Output[str | None]:
        env = self._args.environment
        return self._args.joining.apply(lambda joining: node_groups.boot(env, pool, joining))

    def _interfaces(self, pool: Pool) -> list[ec2.LaunchTemplateNetworkInterfaceArgs]:
        """With interfaces of its own, a template must name their security group: EKS then adds none."""
        return [
            ec2.LaunchTemplateNetworkInterfaceArgs(
                network_card_index=planned["networkCardIndex"],
                device_index=planned["deviceIndex"],
                interface_type=planned["interfaceType"],
                security_groups=[self._args.security_group],
                delete_on_termination="true",
            )
            for planned in node_class.network_interfaces(pool)
        ]

    def _placement(self, pool: Pool) -> ec2.LaunchTemplatePlacementArgs:
        group = ec2.PlacementGroup(f"{self._name}-{pool.name}", strategy="cluster", opts=self._child)
        return ec2.LaunchTemplatePlacementArgs(group_name=group.name)


def _volumes(pool: Pool) -> list[ec2.LaunchTemplateBlockDeviceMappingArgs]:
    """The same volumes as on the nodes that Karpenter starts."""
    return [
        ec2.LaunchTemplateBlockDeviceMappingArgs(
            device_name=planned["deviceName"],
            ebs=ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
                volume_size=int(planned["ebs"]["volumeSize"].removesuffix("Gi")),
                volume_type=planned["ebs"]["volumeType"],
                iops=planned["ebs"].get("iops"),
                throughput=planned["ebs"].get("throughput"),
                encrypted="true",
                delete_on_termination="true",
            ),
        )
        for planned in node_class.block_devices(pool)
    ]


def _reservation(pool: Pool) -> ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    """The one reservation of a managed pool; parsing refuses more."""
    if not pool.on_aws.reservations:
        return None
    target = ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=pool.on_aws.reservations[0]
    )
    return ec2.LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)
