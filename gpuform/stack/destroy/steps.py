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
        "their pods, so that no node is launched for them",
        300,
    ),
    Step(
        "load balancers",
        "deletes Services of type LoadBalancer and Ingresses, of every namespace",
        "the controllers that delete them at AWS: only they can, and each blocks the subnets",
        600,
    ),
    Step(
        "volumes",
        "keeps volumes with data at AWS; with --purge, deletes claims and volumes",
        "the storage driver, with --purge",
        600,
    ),
    Step(
        "pools",
        "deletes NodePools and NodeClaims",
        "Karpenter to drain the nodes and terminate their instances: nothing else does",
        1200,
    ),
    Step(
        "classes",
        "deletes NodeOverlays and EC2NodeClasses",
        "Karpenter to delete the instance profiles and launch templates that it created",
        300,
    ),
    Step(
        "cluster",
        "the engine deletes the platform, Karpenter, add-ons, node groups, access entries, the cluster",
        "each of them",
    ),
    Step(
        "leftovers",
        "terminates instances, deletes unused network interfaces and security groups with the cluster's name",
        "AWS to delete them",
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
        "the controllers that delete them at OpenStack; each blocks the cluster's network",
        600,
    ),
    Step(
        "volumes",
        "keeps volumes with data at OpenStack; with --purge, deletes claims and volumes",
        "the storage driver, with --purge",
        600,
    ),
    Step(
        "leftovers",
        "deletes load balancers of Services that are gone, by the cluster's id",
        "octavia to release their ports",
        600,
    ),
    Step(
        "cluster",
        "the engine deletes the platform, node groups, the cluster, its template if it is ours",
        "each of them; Magnum deletes a cluster's nodes, network and stack",
    ),
)
"""Steps of a stack on OpenStack. Magnum removes the nodes itself: no controller has to be alive for that."""

OF_OTHERS: tuple[Step, ...] = (
    Step("stack", "the engine deletes all that it created, in reverse order", "each of them"),
)
"""Steps of every other stack: it consists of objects of a cluster, and the engine knows their order."""
BY_ENGINE: tuple[Name, ...] = ("cluster", "network", "stack")
"""Steps that the engine does, which locks the stack itself."""
