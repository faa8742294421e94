"""AWS services that the nodes of an environment reach inside their VPC, rather than through NAT."""

from __future__ import annotations

from infra.model.aws import AwsCluster
from infra.model.aws_network import ExistingNetwork

_ALWAYS = ("ec2", "ecr.api", "ecr.dkr", "sts")
EVERY = tuple(sorted((*_ALWAYS, "eks", "eks-auth", "sqs", "ssm")))
"""All that nodes, Karpenter and the Pod Identity agent call, except S3, IAM and the price list."""


def interface_endpoints(cluster: AwsCluster) -> tuple[str, ...]:
    """AWS services with an endpoint inside the VPC: their traffic, images above all, then costs no NAT.

    None in an existing VPC: its owner creates them. A cluster without a public endpoint also gets those
    that Karpenter and the Pod Identity agent call; IAM and the price list have no endpoint, so NAT is still
    needed.
    """
    if isinstance(cluster.network, ExistingNetwork):
        return ()
    return _ALWAYS if cluster.endpoint.public_cidrs else EVERY
