"""EKS managed node groups: for pools with a fixed number of nodes, and for the cluster's system nodes."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from infra.model.aws import images
from infra.model.aws.cluster import AwsCluster
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan import sharing, startup, user_data

SYSTEM = "system"

TAINT_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
"""EKS API names of Kubernetes' taint effects."""

MINIMAL = "MINIMAL"
"""EKS update strategy that ends old nodes before it starts new ones; EKS' default starts new ones first.

Source: Amazon EKS user guide, "Understand each phase of node updates".
"""

CREATE_MINUTES = 60
"""The AWS provider's own limit of each operation of a group (its documentation, timeouts)."""
_NODE_MINUTES = 30
"""For one node of an update: its successor starts, then EKS evicts its pods for 15 minutes at most (the user
guide's page above)."""

_CAPACITY = {"on_demand": "ON_DEMAND", "spot": "SPOT", "reserved": "ON_DEMAND"}


@dataclass(frozen=True)
class JoinSettings:
    """What a node must know of its cluster to join it."""

    name: str
    endpoint: str
    certificate_authority: str
    service_cidr: str


def cluster_of(env: Environment) -> AwsCluster:
    """The AWS cluster; only called on AWS."""
    assert isinstance(env.cluster, AwsCluster)
    return env.cluster


def system_pool(env: Environment) -> Pool:
    """The system nodes, as a pool with a taint that workloads do not tolerate.

    Without nodes of their own, Karpenter's pods could be scheduled to a node that Karpenter removes, and
    CoreDNS would wait for nodes that need CoreDNS to start.
    """
    system = cluster_of(env).system
    taint = {"key": labels.CRITICAL_ADDONS, "value": "true"}
    fields = {"name": SYSTEM, "machine": system.machine, "nodes": system.nodes, "taints": [taint]}
    return Pool.model_validate(fields, context={"cluster": "aws", "catalogue": env.catalogue})


def managed_pools(env: Environment) -> tuple[Pool, ...]:
    """The pools that become managed node groups, in their order."""
    return tuple(pool for pool in env.pools if not pool.by_karpenter)


def zones(env: Environment, pool: Pool) -> tuple[str, ...]:
    """The zones that the pool's nodes may be in."""
    return pool.zones or cluster_of(env).network.zones


def capacity_type(pool: Pool) -> str:
    """EKS capacity type; a reservation is on-demand capacity that the launch template points to."""
    return "CAPACITY_BLOCK" if pool.aws_settings.capacity_block else _CAPACITY[pool.capacity[0]]


def update_strategy(pool: Pool) -> str | None:
    """``MINIMAL`` where a new node has no place beside the old ones; None for EKS' default.

    The size of a reservation or capacity block is not declared, so it is assumed to be in use.
    """
    return MINIMAL if "reserved" in pool.capacity else None


def update_minutes(pool: Pool) -> int:
    """Minutes for an update or a delete of the group, in which EKS replaces or drains node after node."""
    return max(CREATE_MINUTES, pool.max_nodes * _NODE_MINUTES)


def taints(env: Environment, pool: Pool) -> list[dict[str, str]]:
    """The pool's taints in EKS API terms, with the startup taint.

    EKS sets a group's taints as its nodes join. If an update of the group sets them again, the readiness gate
    removes the startup taint again.
    """
    return [{**taint, "effect": TAINT_EFFECTS[taint["effect"]]} for taint in _joining_taints(env, pool)]


def _joining_taints(env: Environment, pool: Pool) -> list[dict[str, str]]:
    return [*sharing.pool_taints(env, pool), *startup.startup_taints(env, pool)]


def is_repaired(env: Environment, pool: Pool) -> bool:
    """Whether EKS may replace unhealthy nodes of the pool's group.

    Always without GPUs; with GPUs unless the health loop acts, or a person.
    """
    return not pool.gpus or env.health is None or env.health.repair == "eks"


def release_parameter(env: Environment, pool: Pool) -> str | None:
    """Public SSM parameter with the EKS release version of a dated alias; None for an AMI id.

    It is beside the one with the AMI id: AL2023 calls it release_version (1.34.2-20261012), Bottlerocket
    image_version (1.50.0-1a2b3c4d). So a node group keeps one release, and EKS knows the image's type, adds
    the cluster's data to the user data and labels the nodes; Karpenter resolves the same alias.
    """
    cluster = cluster_of(env)
    pin = cluster.images[pool.image.key]
    if not images.is_alias(pin):
        return None
    name = {"AL2023": "release_version", "Bottlerocket": "image_version"}[pool.image.family]
    return images.ssm_parameter(pool.image, cluster.version, pin).replace("/image_id", f"/{name}")


def encoded_user_data(env: Environment, pool: Pool, joining: JoinSettings | None = None) -> str | None:
    """User data in base64; None if empty.

    ``joining`` is for an image given by AMI id: EKS then adds nothing, not even labels and taints, so this
    user data has everything.
    """
    text = user_data.render(env, pool)
    if joining is not None:
        add_settings = _add_node_config if pool.image.family == "AL2023" else _add_bottlerocket_settings
        text = add_settings(env, pool, joining, text)
    return base64.b64encode(text.encode()).decode() if text else None


def _add_node_config(env: Environment, pool: Pool, joining: JoinSettings, text: str) -> str:
    """Add a NodeConfig to the archive; nodeadm merges all of them."""
    cluster = {
        "name": joining.name,
        "apiServerEndpoint": joining.endpoint,
        "certificateAuthority": joining.certificate_authority,
        "cidr": joining.service_cidr,
    }
    taint_flags = [
        f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in _joining_taints(env, pool)
    ]
    flags = [f"--node-labels={','.join(f'{k}={v}' for k, v in sharing.pool_labels(env, pool).items())}"]
    if taint_flags:
        flags.append(f"--register-with-taints={','.join(taint_flags)}")
    config = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {"cluster": cluster, "kubelet": {"flags": flags}},
    }
    return user_data.add_part(text, "application/node.eks.aws", sharing.to_yaml(config))


def _add_bottlerocket_settings(env: Environment, pool: Pool, joining: JoinSettings, text: str) -> str:
    """Add to ``settings.kubernetes``; TOML allows each table once, so an existing one is extended."""
    cluster_settings = {
        "api-server": joining.endpoint,
        "cluster-certificate": joining.certificate_authority,
        "cluster-name": joining.name,
    }
    taint_settings: dict[str, list[str]] = {}
    for taint in _joining_taints(env, pool):
        taint_settings.setdefault(taint["key"], []).append(f"{taint.get('value', '')}:{taint['effect']}")
    head = "[settings.kubernetes]\n"
    with_table = text if head in text else f"{head}\n{text}" if text else head
    tables = [
        with_table.replace(head, head + _toml(cluster_settings), 1),
        "[settings.kubernetes.node-labels]\n" + _toml(sharing.pool_labels(env, pool)),
        *(["[settings.kubernetes.node-taints]\n" + _toml(taint_settings)] if taint_settings else []),
    ]
    return "\n".join(tables)


def _toml(values: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in sorted(values.items()))


def instance_tags(env: Environment, pool: Pool) -> dict[str, str]:
    """Tags of instances and volumes: the cluster's, and the instance's name, environment and pool.

    The provider's default tags apply to what Pulumi creates, not to what Karpenter or a node group launches.
    """
    pool_tags = {"Name": f"{env.name}-{pool.name}", labels.ENVIRONMENT: env.name, labels.POOL: pool.name}
    return {**cluster_of(env).tags, **pool_tags}
