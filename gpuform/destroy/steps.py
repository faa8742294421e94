"""The order of a destroy. Each step can be repeated, so the same command continues a killed run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Name = Literal[
    "workloads", "load balancers", "volumes", "pools", "classes", "cluster", "leftovers", "network", "stack"
]


@dataclass(frozen=True)
class Step:
    """What is done, what it waits for, and its time limit in seconds; None: the engine's own limits."""

    name: Name
    does: str
    waits_for: str
    bound_s: float | None = None


OF_EKS: tuple[Step, ...] = (
    Step(
        "workloads",
        "deletes the workloads that the stack declares",
        "their pods, so that nothing new is bought for them",
        300,
    ),
    Step(
        "load balancers",
        "deletes Services of type LoadBalancer and Ingresses, of every namespace",
        "the controllers that take them down at AWS: only they can, and each holds the subnets",
        600,
    ),
    Step(
        "volumes",
        "tells volumes with data to stay at AWS; with --purge, deletes claims and volumes",
        "the storage driver, with --purge",
        600,
    ),
    Step(
        "pools",
        "deletes NodePools and NodeClaims",
        "Karpenter to drain the nodes and end their instances: nobody else does",
        1200,
    ),
    Step(
        "classes",
        "deletes NodeOverlays and EC2NodeClasses",
        "Karpenter to delete the instance profiles and launch templates that it made",
        300,
    ),
    Step(
        "cluster",
        "the engine deletes the platform, Karpenter, add-ons, node groups, access entries, the cluster",
        "each of them",
    ),
    Step(
        "leftovers",
        "ends instances, deletes unused network interfaces and security groups that bear the cluster's name",
        "AWS to let go of them",
        900,
    ),
    Step("network", "the engine deletes VPC, subnets, gateways, endpoints", "each of them"),
)
"""Steps of a stack on AWS."""

OF_MAGNUM: tuple[Step, ...] = (
    Step(
        "workloads",
        "deletes the workloads that the stack declares",
        "their pods, so that no node is added for them",
        300,
    ),
    Step(
        "load balancers",
        "deletes Services of type LoadBalancer and Ingresses, of every namespace",
        "the controllers that take them down at OpenStack; each holds the cluster's network",
        600,
    ),
    Step(
        "volumes",
        "tells volumes with data to stay at OpenStack; with --purge, deletes claims and volumes",
        "the storage driver, with --purge",
        600,
    ),
    Step(
        "leftovers",
        "deletes load balancers of Services that are gone, by the cluster's id",
        "octavia to let go of their ports",
        600,
    ),
    Step(
        "cluster",
        "the engine deletes the platform, node groups, the cluster, its template if it is ours",
        "each of them; Magnum takes nodes, network and stack of a cluster down",
    ),
)
"""Steps of a stack on OpenStack. Magnum removes the nodes itself: no controller has to be alive for that."""

OF_OTHERS: tuple[Step, ...] = (
    Step("stack", "the engine deletes all that it made, last things first", "each of them"),
)
"""Steps of every other stack: it consists of objects of a cluster, and the engine knows their order."""
