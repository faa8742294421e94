"""How a cluster on EKS is destroyed, and its VPC, which the cluster's leftovers would block.

The engine runs twice: leftovers in the VPC can be deleted only once the cluster is gone, and until then the
VPC cannot be deleted (AWS's provider would try for 20 minutes and fail). So the first run spares the network,
then the leftovers are deleted, then the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.listing import count_of
from gpuform.checkout.paths import Paths
from gpuform.clouds.aws.leftovers import (
    Leftovers,
    Scope,
    may_query_aws,
    require_gone,
    require_no_cluster,
    vpc_id_by_tag,
)
from gpuform.clouds.aws.recover import AwsRecovery
from gpuform.kubernetes.cluster import Cluster
from gpuform.kubernetes.kinds import NODE_CLASS, NODE_POOL
from gpuform.stack.destroy.operator import read_controller
from gpuform.stack.destroy.state import State
from gpuform.stack.destroy.teardown import CreatedCluster, Step, Teardown
from gpuform.stack.destroy.waiting import Say
from infra.model.aws.cluster import AwsCluster
from infra.plan.eks import kubeconfig
from infra.plan.node_groups import JoinSettings

_SIMULATED = "point AWS_ENDPOINT_URL at a simulated AWS on this machine"
_OFFLINE = f"offline: AWS is not queried for leftovers; {_SIMULATED}"
_ONLINE = f"run without --offline, or {_SIMULATED}"

EKS_STEPS: tuple[Step, ...] = (
    Step("workloads", "deletes the workloads that the stack declares", 300),
    Step("load balancers", "deletes Services of type LoadBalancer and Ingresses, of every namespace", 600),
    Step("volumes", "keeps volumes with data at AWS; with --purge, deletes claims and volumes", 600),
    Step("pools", "deletes NodePools and NodeClaims", 1200),
    Step("classes", "deletes NodeOverlays and EC2NodeClasses", 300),
    Step(
        "cluster",
        "the engine deletes the platform, Karpenter, add-ons, node groups, access entries, the cluster",
    ),
    Step(
        "leftovers",
        "terminates instances, deletes unused network interfaces and security groups with the cluster's name",
        900,
    ),
    Step("network", "the engine deletes VPC, subnets, gateways, endpoints"),
)


@dataclass
class AwsTeardown(Teardown):
    """A stack that creates a cluster on AWS."""

    steps: ClassVar[tuple[Step, ...]] = EKS_STEPS
    cloud_name: ClassVar[str] = "AWS"
    reach_hint: ClassVar[str] = "credentials, VPC, public_cidrs"
    prover: ClassVar[str] = "EKS"
    refused_options: ClassVar[Mapping[str, str]] = {}

    @property
    def region(self) -> str:
        assert isinstance(self.env.cluster, AwsCluster)
        return self.env.cluster.region

    @property
    def nothing_found(self) -> str:  # type: ignore[override]
        return "no VPC" if may_query_aws(self.options.offline) else "AWS is not queried offline"

    def refuse_options(self) -> None:
        """Every option applies, but an offline run gets no proof."""
        if self.options.cluster_gone and not may_query_aws(self.options.offline):
            fact = "needs proof from EKS, which an offline run cannot get"
            raise InputError("--cluster-gone", fact, _ONLINE)

    def notes(self) -> tuple[str, ...]:
        return () if may_query_aws(self.options.offline) else (_OFFLINE,)

    def require_account(self, state: State, export: Mapping[str, Any]) -> None:
        if (stack_regions := provider_regions(state)) and self.region not in stack_regions:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares region {self.region}, but the stack is in {', '.join(sorted(stack_regions))}",
                "set cluster.region back to the region of the stack",
            )
        cluster = eks_cluster(state)
        name = cluster.name if cluster else state.environment
        if name and name != self.env.name:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares the name {self.env.name}, but the stack's cluster is {name}",
                f"set name back to {name}",
            )
        if state.counts() and not self.options.offline:
            AwsRecovery().require_account(self.stack, export)

    def created_cluster(self, state: State) -> Eks | None:
        return eks_cluster(state)

    def access(self, state: State, paths: Paths, shown: Callable[[], Mapping[str, Any]]) -> Path | str:
        """From the state alone, for a failed update has no outputs; offline, the embedded cluster.

        Contains no secret: its user gets a token from AWS with their own credentials.
        """
        cluster = eks_cluster(state)
        assert cluster
        if self.options.offline:
            return paths.kubeconfig
        joining = JoinSettings(cluster.name, cluster.endpoint, cluster.certificate_authority, "")
        return kubeconfig(self.region, joining)

    def require_gone(self, state: State) -> str:
        cluster = eks_cluster(state)
        assert cluster
        return require_gone(cluster.name, cluster.account, self.region)

    def leftovers(self, state: State) -> Leftovers | None:
        """Leftovers in the cluster's VPC; None if it has no VPC, or AWS may not be queried."""
        if not may_query_aws(self.options.offline):
            return None
        if shared := existing_vpc_id(state):
            return Leftovers(Scope(self.region, self.env.name, self.env.name, shared, shared=True))
        if not (created := vpc_ids(state)):
            return None
        vpc = vpc_id_by_tag(self.region, self.env.name) if self.options.offline else created[0]
        return Leftovers(Scope(self.region, self.env.name, self.env.name, vpc)) if vpc else None

    def require_sweepable(self, state: State) -> None:
        if eks_cluster(state) is not None:
            raise Failure(f"stack {self.stack}", "still has its cluster", "run the same command again")

    def require_cluster_gone(self) -> None:
        require_no_cluster(self.env.name, self.region)

    def excluded_urns(self, state: State) -> tuple[str, ...]:
        """The network: leftovers would block its deletion."""
        return network_urns(state)

    def refuse_force(self, cluster: Cluster) -> None:
        """While Karpenter runs and has something to delete."""
        karpenter = read_controller(cluster)
        if karpenter.alive and any(cluster.list_objects(kind) for kind in (NODE_POOL, NODE_CLASS)):
            raise InputError(
                "--force",
                f"Karpenter {karpenter.state}, and terminates its nodes itself",
                "run without --force",
            )

    def terminate_nodes(self, state: State, say: Say) -> None:
        """The instances that Karpenter launched."""
        leftovers = self.leftovers(state)
        if leftovers is None:
            say("--force: AWS is not queried, so no instance is terminated")
            return
        for instance in leftovers.instances(of_karpenter=True):
            say(f"--force: terminates {instance}")
            leftovers.delete(instance)

    def require_network_unused(self, state: State) -> None:
        leftovers = self.leftovers(state)
        if foreign := leftovers.foreign() if leftovers else ():
            raise Failure(
                f"VPC of {self.stack}",
                f"the cluster is gone, but its VPC still has {count_of(len(foreign), 'network interface')}"
                f" not created by gpuform: {'; '.join(f'{item.id} ({item.why})' for item in foreign)}",
                "delete them, or what uses them, and run the same command again",
            )


_CLUSTER, _VPC = "aws:eks/cluster:Cluster", "aws:ec2/vpc:Vpc"
_NETWORK, _EXISTING = "gpuform:aws:Network", "gpuform:aws:ExistingVpc"


@dataclass(frozen=True)
class Eks(CreatedCluster):
    """The EKS cluster in the state; ``account`` is its AWS account."""

    certificate_authority: str
    account: str


def eks_cluster(state: State) -> Eks | None:
    """None if the state has no EKS cluster, or only one that was never created."""
    for resource in state.of_type(_CLUSTER):
        if outputs := resource.get("outputs"):
            authority = (outputs.get("certificateAuthority") or {}).get("data", "")
            account = str(outputs.get("arn", "")).split(":")[4:5]
            return Eks(str(outputs["name"]), str(outputs.get("endpoint", "")), authority, "".join(account))
    return None


def vpc_ids(state: State) -> tuple[str, ...]:
    """Ids of the VPCs; made up after an offline run."""
    return tuple(str(resource["id"]) for resource in state.of_type(_VPC) if resource.get("id"))


def existing_vpc_id(state: State) -> str:
    """Id of a VPC that the stack uses but did not create; empty if there is none."""
    networks = (resource.get("outputs") or {} for resource in state.of_type(_EXISTING))
    return next((str(outputs["vpc_id"]) for outputs in networks if outputs.get("vpc_id")), "")


def provider_regions(state: State) -> frozenset[str]:
    """Regions of the AWS providers in the state; empty if they are not in plain text."""
    providers = state.of_type("pulumi:providers:aws")
    names = ((provider.get("inputs") or {}).get("region") for provider in providers)
    return frozenset(name for name in names if isinstance(name, str))


def network_urns(state: State) -> tuple[str, ...]:
    """URNs of the network's components, and of all that they contain."""
    urns: dict[str, None] = {}
    for resource in state.resources:  # parents come first
        if resource["type"] in (_NETWORK, _EXISTING) or resource.get("parent") in urns:
            urns[str(resource["urn"])] = None
    return tuple(urns)
