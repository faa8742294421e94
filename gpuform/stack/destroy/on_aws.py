"""What a destroy must know about AWS: EKS, and a VPC that a cluster's leftovers would block."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.stack.destroy.cluster import access
from gpuform.stack.destroy.grounds import Ground
from gpuform.stack.destroy.leftovers import Leftovers, Scope, may_be_asked, vpc_by_tag
from gpuform.stack.destroy.proof import refuse_living, require_gone
from gpuform.stack.destroy.state import Eks, Known
from gpuform.stack.destroy.steps import OF_EKS, Step
from gpuform.stack.recover.aws import require_account
from infra.model.aws import AwsCluster

_OFFLINE = (
    "offline: AWS is not queried for leftovers; point AWS_ENDPOINT_URL at a simulated AWS on this machine"
)
_REAL = "run without --offline, or point AWS_ENDPOINT_URL at a simulated AWS on this machine"


@dataclass
class OnAws(Ground):
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
        if known.regions and self.region not in known.regions:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares region {self.region}, but the stack is in {', '.join(sorted(known.regions))}",
                "set cluster.region back to the region of the stack",
            )
        name = known.eks.name if known.eks else known.environment
        if name and name != self.env.name:
            raise InputError(
                f"Pulumi.{self.stack}.yaml",
                f"declares the name {self.env.name}, but the stack's cluster is {name}",
                f"set name back to {name}",
            )
        if known.counts() and not self.options.offline:
            require_account(self.stack, state)

    def made(self, known: Known) -> Eks | None:
        return known.eks

    def access(self, known: Known, paths: Paths, shown: Callable[[], Mapping[str, Any]]) -> Path | str:
        """From the state alone; offline, the cluster on this machine that simulates it."""
        assert known.eks
        return paths.kubeconfig if self.options.offline else access(known.eks, self.region)

    def require_gone(self, known: Known) -> str:
        assert known.eks
        return require_gone(known.eks, self.region)

    def leftovers(self, known: Known) -> Leftovers | None:
        """Leftovers in the cluster's VPC; None if it has no VPC, or AWS may not be queried."""
        if not may_be_asked(self.options.offline):
            return None
        if known.existing_vpc:
            scope = Scope(self.region, self.env.name, self.env.name, known.existing_vpc, shared=True)
            return Leftovers(scope)
        if not known.vpcs:
            return None
        vpc = vpc_by_tag(self.region, self.env.name) if self.options.offline else known.vpcs[0]
        return Leftovers(Scope(self.region, self.env.name, self.env.name, vpc)) if vpc else None

    def require_sweepable(self, known: Known) -> None:
        if known.eks is not None:
            raise Failure(f"stack {self.stack}", "still has its cluster", "run the same command again")

    def refuse_living(self) -> None:
        refuse_living(self.env.name, self.region)

    def spared(self, known: Known) -> tuple[str, ...]:
        """The network: leftovers would block its deletion."""
        return known.network
