"""Which AWS services the nodes of an environment reach inside their VPC, rather than through NAT."""

from __future__ import annotations

from infra.model.aws import AwsCluster

_ALWAYS = ("ec2", "ecr.api", "ecr.dkr", "sts")
_PRIVATE = ("eks", "eks-auth", "sqs", "ssm")


def interface_endpoints(cluster: AwsCluster) -> tuple[str, ...]:
    """AWS services with an endpoint inside the VPC, so that their traffic, images above all, pays no NAT.

    A cluster without a public endpoint gets those that Karpenter and the Pod Identity agent call as well; IAM
    and the price list have none, so NAT stays needed.
    """
    return _ALWAYS if cluster.endpoint.public_cidrs else tuple(sorted(_ALWAYS + _PRIVATE))
