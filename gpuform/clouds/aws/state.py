"""What only the state of a stack on AWS has: EKS cluster, VPC, network and region."""

from __future__ import annotations

from dataclasses import dataclass

from gpuform.stack.destroy.state import Known
from gpuform.stack.destroy.teardown import Made

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
