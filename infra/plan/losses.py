"""What a stack keeps that a change could lose; guards compare it with that of the last update."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra.model.aws.network import OwnNetwork
from infra.model.base.fields import Model
from infra.model.environment import Environment
from infra.model.platform.monitoring import CLAIM, NAMESPACE
from infra.model.pool.pool import Pool
from infra.model.workload.workload import NotebookWorkload
from infra.plan import magnum, node_groups, notebooks, quotas

Fixed = dict[str, Any]


def cluster(env: Environment) -> Fixed:
    """Values that only another cluster can have, by path.

    Sources for AWS: ForceNew in terraform-provider-aws (``aws_eks_cluster``, ``aws_vpc``), and EKS's API
    reference: UpdateClusterConfig accepts only subnets of the cluster's own VPC. Those of a Magnum cluster
    have a guard of their own (`infra.plan.magnum`).
    """
    values: Fixed = {"cluster.kind": env.cluster.kind}
    if env.cluster.kind == "aws":
        network = env.cluster.network
        values |= {"name": env.name, "cluster.region": env.cluster.region}
        if isinstance(network, OwnNetwork):
            return values | {"cluster.network.cidr": network.cidr}
        return values | {"cluster.network.vpc": network.vpc}
    return values


def contents(env: Environment) -> Fixed:
    """As `cluster`, and what replaces a Magnum cluster: then pools and namespaces go with it."""
    values = cluster(env)
    return values | magnum.cluster_guard(env).trigger if env.cluster.kind == "openstack" else values


def pools(env: Environment) -> dict[str, Fixed]:
    """Pools with nodes of their own, each with the values that only a replacement of its nodes changes.

    Nodes of existing clusters and own hosts stay when their pool is removed.
    """
    if env.cluster.kind == "aws":
        return {pool.name: _on_aws(env, pool) for pool in env.pools}
    if env.cluster.kind == "openstack":
        return {pool.name: magnum.pool_guard(env, pool).trigger for pool in env.pools}
    return {}


def _on_aws(env: Environment, pool: Pool) -> Fixed:
    """ForceNew in terraform-provider-aws (``aws_eks_node_group``); Karpenter replaces nodes one by one."""
    if pool.by_karpenter:
        return {"nodes": "of Karpenter"}
    network = node_groups.cluster_of(env).network
    subnet_of_zone: Mapping[str, str] = (
        {zone.zone: zone.private for zone in env.subnets}
        if isinstance(network, OwnNetwork)
        else network.subnet_ids
    )
    return {
        "nodes": "of a node group",
        "machine": [machine.name for machine in pool.machines],
        "image": pool.image.eks_ami_type if node_groups.release_parameter(env, pool) else "CUSTOM",
        "capacity": node_groups.capacity_type(pool),
        "subnets": {zone: subnet_of_zone.get(zone, zone) for zone in node_groups.zones(env, pool)},
    }


def may_lose(recorded: Mapping[str, Any], env: Environment) -> bool:
    """Whether a pool, namespace, queue or volume that the guards have recorded is declared otherwise."""
    declared = pools(env)
    recorded_pools: Mapping[str, Any] = recorded.get("pools") or {}
    return any(declared.get(name) != fixed for name, fixed in recorded_pools.items()) or bool(
        set(recorded.get("namespaces") or ()) - set(namespaces(env))
        or set(recorded.get("queues") or ()) - set(queues(env))
        or (claims := volumes(env)) != recorded.get("volumes", claims)
    )


def namespaces(env: Environment) -> list[str]:
    """Namespaces that the stack creates."""
    if not env.has_cluster:
        return []
    return [str(namespace["metadata"]["name"]) for namespace in quotas.namespaces(env)]


def queues(env: Environment) -> list[str]:
    """Queues of teams."""
    return sorted(team.name for team in env.queues.teams) if env.queues and env.has_cluster else []


def volumes(env: Environment) -> dict[str, Fixed]:
    """Claims of the stack's StatefulSets by ``namespace/name``: where they are declared, size and class."""
    declared: dict[str, tuple[str, Model | None]] = {}
    if env.installs_prometheus:
        declared[f"{NAMESPACE}/{CLAIM}"] = "monitoring.storage", env.monitoring and env.monitoring.storage
    for index, work in enumerate(env.workloads):
        if isinstance(work, NotebookWorkload):
            claim = f"{notebooks.volume(work)}-{work.name}-0"
            declared[f"{work.namespace}/{claim}"] = f"workloads[{index}].home", work.home
    return {key: {"at": at} | one.model_dump(exclude_none=True) for key, (at, one) in declared.items() if one}


def lost_with_cluster(env: Environment) -> list[str]:
    """What goes with the cluster, in words."""
    return [
        *(f"pool {pool.name}" for pool in env.pools),
        *(f"{work.kind} {work.namespace}/{work.name}" for work in env.workloads),
    ]
