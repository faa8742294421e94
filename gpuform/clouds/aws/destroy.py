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
from gpuform.checkout.paths import Paths
from gpuform.clouds.aws.leftovers import (
    Leftovers,
    Scope,
    may_be_asked,
    refuse_living,
    require_gone,
    vpc_by_tag,
)
from gpuform.clouds.aws.recover import AwsRecovery
from gpuform.stack.destroy.cluster import NODE_CLASS, NODE_POOL, Cluster, Say, counted
from gpuform.stack.destroy.finalizers import controller
from gpuform.stack.destroy.state import Known
from gpuform.stack.destroy.teardown import Made, Step, Teardown
from infra.model.aws import AwsCluster
from infra.plan.eks import kubeconfig
from infra.plan.node_groups import Joining

_OFFLINE = (
    "offline: AWS is not queried for leftovers; point AWS_ENDPOINT_URL at a simulated AWS on this machine"
)
_REAL = "run without --offline, or point AWS_ENDPOINT_URL at a simulated AWS on this machine"

OF_EKS: tuple[Step, ...] = (
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

    steps: ClassVar[tuple[Step, ...]] = OF_EKS
    where: ClassVar[str] = "AWS"
    reach: ClassVar[str] = "credentials, VPC, public_cidrs"
    prover: ClassVar[str] = "EKS"
    refused: ClassVar[Mapping[str, str]] = {}

    @property
    def region(self) -> str:
        assert isinstance(self.env.cluster, AwsCluster)
        return self.env.cluster.region

    @property
    def nothing(self) -> str:  # type: ignore[override]
        return "no VPC" if may_be_asked(self.options.offline) else "AWS is not queried offline"

    def refuse_options(self) -> None:
        """Every option applies, but an offline run gets no proof."""
        if self.options.cluster_gone and not may_be_asked(self.options.offline):
            raise InputError("--cluster-gone", "needs proof from EKS, which an offline run cannot get", _REAL)

    def notes(self) -> tuple[str, ...]:
        return () if may_be_asked(self.options.offline) else (_OFFLINE,)

    def require_place(self, known: Known, state: Mapping[str, Any]) -> None:
        if (found := regions(known)) and self.region not in found:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares region {self.region}, but the stack is in {', '.join(sorted(found))}",
                "set cluster.region back to the region of the stack",
            )
        made = eks(known)
        name = made.name if made else known.environment
        if name and name != self.env.name:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares the name {self.env.name}, but the stack's cluster is {name}",
                f"set name back to {name}",
            )
        if known.counts() and not self.options.offline:
            AwsRecovery().require_place(self.stack, state)

    def made(self, known: Known) -> Eks | None:
        return eks(known)

    def access(self, known: Known, paths: Paths, shown: Callable[[], Mapping[str, Any]]) -> Path | str:
        """From the state alone, for a failed update has no outputs; offline, the embedded cluster.

        Contains no secret: its user gets a token from AWS with their own credentials.
        """
        made = eks(known)
        assert made
        if self.options.offline:
            return paths.kubeconfig
        return kubeconfig(self.region, Joining(made.name, made.endpoint, made.certificate_authority, ""))

    def require_gone(self, known: Known) -> str:
        made = eks(known)
        assert made
        return require_gone(made.name, made.account, self.region)

    def leftovers(self, known: Known) -> Leftovers | None:
        """Leftovers in the cluster's VPC; None if it has no VPC, or AWS may not be queried."""
        if not may_be_asked(self.options.offline):
            return None
        if shared := existing_vpc(known):
            return Leftovers(Scope(self.region, self.env.name, self.env.name, shared, shared=True))
        if not (created := vpcs(known)):
            return None
        vpc = vpc_by_tag(self.region, self.env.name) if self.options.offline else created[0]
        return Leftovers(Scope(self.region, self.env.name, self.env.name, vpc)) if vpc else None

    def require_sweepable(self, known: Known) -> None:
        if eks(known) is not None:
            raise Failure(f"stack {self.stack}", "still has its cluster", "run the same command again")

    def refuse_living(self) -> None:
        refuse_living(self.env.name, self.region)

    def spared(self, known: Known) -> tuple[str, ...]:
        """The network: leftovers would block its deletion."""
        return network(known)

    def refuse_force(self, cluster: Cluster) -> None:
        """While Karpenter runs and has something to delete."""
        karpenter = controller(cluster)
        if karpenter.alive and any(cluster.objects(kind) for kind in (NODE_POOL, NODE_CLASS)):
            raise InputError(
                "--force",
                f"Karpenter {karpenter.said}, and terminates its nodes itself",
                "run without --force",
            )

    def terminate_nodes(self, known: Known, say: Say) -> None:
        """The instances that Karpenter launched."""
        leftovers = self.leftovers(known)
        if leftovers is None:
            say("--force: AWS is not queried, so no instance is terminated")
            return
        for one in leftovers.instances(of_karpenter=True):
            say(f"--force: terminates {one}")
            leftovers.delete(one)

    def require_network_unused(self, known: Known) -> None:
        leftovers = self.leftovers(known)
        if foreign := leftovers.foreign() if leftovers else ():
            raise Failure(
                f"VPC of {self.stack}",
                f"the cluster is gone, but its VPC still has {counted(len(foreign), 'network interface')}"
                f" not created by gpuform: {'; '.join(f'{one.id} ({one.why})' for one in foreign)}",
                "delete them, or what uses them, and run the same command again",
            )


_CLUSTER, _VPC = "aws:eks/cluster:Cluster", "aws:ec2/vpc:Vpc"
_NETWORK, _EXISTING = "gpuform:aws:Network", "gpuform:aws:ExistingVpc"


@dataclass(frozen=True)
class Eks(Made):
    """The EKS cluster in the state; ``account`` is its AWS account."""

    certificate_authority: str
    account: str


def eks(known: Known) -> Eks | None:
    """None if the state has no EKS cluster, or only one that was never created."""
    for one in known.of_type(_CLUSTER):
        if made := one.get("outputs"):
            authority = (made.get("certificateAuthority") or {}).get("data", "")
            account = str(made.get("arn", "")).split(":")[4:5]
            return Eks(str(made["name"]), str(made.get("endpoint", "")), authority, "".join(account))
    return None


def vpcs(known: Known) -> tuple[str, ...]:
    """Ids of the VPCs; made up after an offline run."""
    return tuple(str(one["id"]) for one in known.of_type(_VPC) if one.get("id"))


def existing_vpc(known: Known) -> str:
    """Id of a VPC that the stack uses but did not create; empty if there is none."""
    found = (one.get("outputs") or {} for one in known.of_type(_EXISTING))
    return next((str(one["vpc_id"]) for one in found if one.get("vpc_id")), "")


def regions(known: Known) -> frozenset[str]:
    """Regions of the AWS providers in the state; empty if they are not in plain text."""
    given = ((one.get("inputs") or {}).get("region") for one in known.of_type("pulumi:providers:aws"))
    return frozenset(one for one in given if isinstance(one, str))


def network(known: Known) -> tuple[str, ...]:
    """URNs of the network's components, and of all that they contain."""
    found: dict[str, None] = {}
    for one in known.resources:  # parents come first
        if one["type"] in (_NETWORK, _EXISTING) or one.get("parent") in found:
            found[str(one["urn"])] = None
    return tuple(found)
