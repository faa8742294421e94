"""The EKS control plane and its access entries."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes
from pulumi_aws import ec2, eks
from pulumi_aws.cloudwatch.log_group import LogGroup
from pulumi_aws.kms.alias import Alias
from pulumi_aws.kms.key import Key

from components.iam_role import iam_role
from components.manifest import timeouts
from infra.model.aws.cluster import AwsCluster
from infra.model.base import labels
from infra.plan import iam
from infra.plan.eks import kubeconfig
from infra.plan.node_groups import JoinSettings

LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")
"""All log types of EKS (API reference, LogSetup)."""
LOG_DAYS = 90  # an incident is often found weeks later; a group without a limit keeps logs for ever
KEY_DELETION_DAYS = 30  # the longest that KMS allows: without the key, no secret of the cluster can be read


def admin_name(cluster: str, arn: str) -> str:
    """Resource name of an admin's access entry; another one for each ARN."""
    return f"{cluster}-admin-{arn.removeprefix('arn:aws:iam::').replace('::', ':')}"


@dataclass(frozen=True, kw_only=True)
class EksClusterArgs:
    """The declared cluster, its name, and the private subnets that it gets its addresses from.

    ``protect``: the engine refuses to delete or replace the cluster and its key.
    """

    cluster: AwsCluster
    cluster_name: str
    partition: pulumi.Input[str]
    subnet_ids: list[pulumi.Output[str]]
    protect: bool


class EksCluster(pulumi.ComponentResource):
    """A control plane with encrypted secrets, all logs and access entries, without nodes and add-ons.

    Without public CIDRs its endpoint is reachable only inside the VPC, so updates must then run there.
    """

    cluster_name: pulumi.Output[str]
    joining: pulumi.Output[JoinSettings]
    security_group: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: kubernetes.Provider

    def __init__(self, name: str, args: EksClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gpuform:aws:EksCluster", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self._cluster = self._control_plane()
        self.cluster_name = self._cluster.name
        self.security_group = self._cluster.vpc_config.cluster_security_group_id
        self.joining = pulumi.Output.all(
            self._cluster.name,
            self._cluster.endpoint,
            self._cluster.certificate_authority.data,
            self._cluster.kubernetes_network_config.service_ipv4_cidr,
        ).apply(lambda values: JoinSettings(*values))
        ec2.Tag(  # for Karpenter's nodes; EKS creates the group without our tags
            f"{name}-discovery",
            resource_id=self.security_group,
            key=labels.KARPENTER_DISCOVERY,
            value=args.cluster_name,
            opts=self._child,
        )
        admins = self._admins()
        # Holds no token: users get one from AWS with their own credentials. A secret all the same.
        config = self.joining.apply(lambda cluster: kubeconfig(args.cluster.region, cluster))
        self.kubeconfig = pulumi.Output.secret(config)
        self.provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=self.kubeconfig,
            enable_config_map_mutable=True,
            # Admins have access before the first object is created.
            opts=pulumi.ResourceOptions(parent=self, depends_on=admins),
        )
        self.register_outputs({"cluster_name": self.cluster_name, "kubeconfig": self.kubeconfig})

    def _control_plane(self) -> eks.Cluster:
        policy = {f"{self._name}-control-plane": "AmazonEKSClusterPolicy"}
        role, attachments = iam_role(
            f"{self._name}-control-plane", iam.CLUSTER, policy, self._args.partition, self
        )
        key = self._key()
        group = LogGroup(
            f"{self._name}-logs",
            name=f"/aws/eks/{self._args.cluster_name}/cluster",
            retention_in_days=LOG_DAYS,
            opts=self._child,
        )
        public = list(self._args.cluster.endpoint.public_cidrs)
        return eks.Cluster(
            f"{self._name}-cluster",
            name=self._args.cluster_name,
            version=self._args.cluster.version,
            role_arn=role.arn,
            vpc_config=eks.ClusterVpcConfigArgs(
                subnet_ids=self._args.subnet_ids,
                endpoint_private_access=True,  # nodes reach it without leaving the VPC
                endpoint_public_access=bool(public),
                public_access_cidrs=public or None,
            ),
            encryption_config={"provider": {"key_arn": key.arn}, "resources": ["secrets"]},
            enabled_cluster_log_types=list(LOGS),
            access_config=eks.ClusterAccessConfigArgs(
                authentication_mode="API",
                # The first update installs charts right after: without this, the API refuses everyone, this
                # program included, until an access entry exists. It cannot be changed later; its entry can be
                # deleted once the admins have theirs. EKS refuses a second entry for the same role, so the
                # cluster's creator must not be listed in its admins.
                bootstrap_cluster_creator_admin_permissions=True,
            ),
            bootstrap_self_managed_addons=False,  # each add-on is declared with its version, see AddOns
            upgrade_policy={"support_type": self._args.cluster.support.upper()},
            # A log group created by EKS itself keeps everything for ever; without the policy, EKS can neither
            # create nor delete its network interfaces.
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[*attachments, group],
                protect=self._args.protect,
                custom_timeouts=timeouts(45, 120, 45),
            ),
        )

    def _key(self) -> Key:
        key = Key(
            f"{self._name}-secrets",
            description=f"Secrets of the EKS cluster {self._args.cluster_name}",
            enable_key_rotation=True,
            deletion_window_in_days=KEY_DELETION_DAYS,
            opts=pulumi.ResourceOptions(parent=self, protect=self._args.protect),
        )
        Alias(
            f"{self._name}-secrets",
            name=f"alias/eks/{self._args.cluster_name}",
            target_key_id=key.key_id,
            opts=self._child,
        )
        return key

    def _admins(self) -> list[pulumi.Resource]:
        associations: list[pulumi.Resource] = []
        for arn in self._args.cluster.admins:
            name = admin_name(self._name, arn)
            # The name in earlier versions, which two admins could share.
            old_name = f"{self._name}-admin-{arn.rpartition(':')[2].replace('/', '-')}"
            child = pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(name=old_name)])
            entry = eks.AccessEntry(
                name, cluster_name=self.cluster_name, principal_arn=arn, type="STANDARD", opts=child
            )
            associations.append(
                eks.AccessPolicyAssociation(
                    name,
                    cluster_name=self.cluster_name,
                    principal_arn=entry.principal_arn,
                    policy_arn=pulumi.Output.format(
                        "arn:{0}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
                        self._args.partition,
                    ),
                    access_scope={"type": "cluster"},
                    opts=child,
                )
            )
        return associations
