"""Proof that a cluster is gone. No answer is no proof: the network may be down, or the endpoint closed."""

from __future__ import annotations

from gpuform.checkout.errors import Failure, InputError
from gpuform.clients.aws.api import Refused, answers, client
from gpuform.clouds.aws.state import Eks


def refuse_living(name: str, region: str) -> None:
    """Raise Failure if EKS has a cluster of this name, whatever a state says; changes nothing."""
    if (status := _status(name, region)) is not None:
        raise Failure(
            "destroy: leftovers at AWS",
            f"EKS still has cluster {name} ({status}), but the stack's state has none",
            "no leftovers are deleted while it exists: delete it, or wait until it is gone, and run the same "
            "command again",
        )


def require_gone(eks: Eks, region: str) -> str:
    """EKS's confirmation that the cluster is gone, as a line; changes nothing.

    Raises InputError if the cluster exists, or if the credentials are those of another account, which has no
    such cluster either; Failure for any other answer of EKS.
    """
    with answers("aws sts get-caller-identity"):
        account = client("sts", region).get_caller_identity()["Account"]
    if account != eks.account:
        raise InputError(
            "--cluster-gone",
            f"the credentials are for account {account}, but the cluster was in {eks.account}",
            "use credentials of that account",
        )
    if (status := _status(eks.name, region)) is not None:
        raise InputError(
            "--cluster-gone",
            f"EKS still has cluster {eks.name} ({status})",
            "run without it; if its endpoint does not answer, run from inside the VPC",
        )
    return f"EKS has no cluster {eks.name} in {region}, account {account}"


def _status(name: str, region: str) -> str | None:
    """None if EKS has no such cluster; Failure for any other error."""
    call = f"aws eks describe-cluster --region {region} --name {name}"
    try:
        with answers(call):
            return str(client("eks", region).describe_cluster(name=name)["cluster"].get("status"))
    except Refused as refused:
        if refused.code == "ResourceNotFoundException":
            return None
        remedy = "this does not prove that the cluster is gone: allow eks:DescribeCluster"
        raise Failure(call, refused.fact, remedy) from None
