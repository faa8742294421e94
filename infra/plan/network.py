"""AWS services that the nodes of an environment reach inside their VPC, rather than through NAT."""

from __future__ import annotations

from infra.model.aws import AwsCluster

_ALWAYS = ("ec2", "ecr.api", "ecr.dkr", "sts")
_PRIVATE = ("eks", "eks-auth", "sqs", "ssm")


def interface_endpoints(cluster: AwsCluster) -> tuple[str, ...]:
    """AWS services with an endpoint inside the VPC: their traffic, images above all, then costs no NAT.

    A cluster without a public endpoint also gets those that Karpenter and the Pod Identity agent call; IAM
    and the price list have no endpoint, so NAT is still needed.
    """
    return _ALWAYS if cluster.endpoint.public_cidrs else tuple(sorted(_ALWAYS + _PRIVATE))
