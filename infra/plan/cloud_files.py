"""Resources of AWS and OpenStack, without charts and objects of the cluster, as documents for review."""

from __future__ import annotations

from typing import Any

from infra.model.environment import Environment
from infra.model.pool.pool import Pool
from infra.plan import accounts, eks, iam, karpenter, magnum, node_groups, sharing, user_data

Documents = list[dict[str, Any]]


def cloud_documents(env: Environment) -> dict[str, Documents]:
    """Documents by file name, empty on other clusters; IAM only if a pool uses Karpenter."""
    if env.cluster.kind == "openstack":
        groups = [_magnum_group(env, pool) for pool in env.pools]
        return {"magnum.yaml": [_magnum_cluster(env), *groups]}
    if env.cluster.kind != "aws":
        return {}
    nodes = [node_groups.system_pool(env), *node_groups.managed_pools(env)]
    versions = {**eks.before_nodes(env), **eks.after_nodes(env)}
    documents = {
        "add-ons.yaml": [{"versions": versions, "settings": eks.add_on_settings(env)}],
        "network.yaml": [_network(env)],
        "node-groups.yaml": [_node_group(env, pool) for pool in nodes],
    }
    if env.has_karpenter:
        documents["iam.yaml"] = _iam_policies()
    return documents


def role_policies(env: Environment) -> dict[str, iam.Policy]:
    """What the roles of runs need on AWS (`accounts.policies`), empty on other clusters."""
    return accounts.policies(env) if env.cluster.kind == "aws" else {}


def _network(env: Environment) -> dict[str, Any]:
    cluster = node_groups.cluster_of(env)
    created = {"subnets": [vars(zone) for zone in env.subnets]} if env.subnets else {}
    return {
        **cluster.network.model_dump(mode="json"),
        **created,
        "endpoints": list(eks.interface_endpoints(cluster)),
        "public_cidrs": list(cluster.endpoint.public_cidrs),
    }


def _node_group(env: Environment, pool: Pool) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "node group": pool.name,
        "nodes": pool.nodes,
        **({"scaling": dict(zip(("min", "max"), pool.bounds, strict=True))} if pool.bounds else {}),
        "machines": [machine.name for machine in pool.machines],
        "bought": node_groups.capacity_type(pool),
        "reservations": list(pool.aws_settings.reservations),
        "zones": list(node_groups.zones(env, pool)),
        "image": {"type": pool.image.eks_ami_type, "pin": env.ami(pool)},
        "volumes": karpenter.block_devices(pool),
        "placement group": pool.aws_settings.placement_group,
        "labels": sharing.pool_labels(env, pool),
        "taints": sharing.pool_taints(env, pool),
        "user data": user_data.render(env, pool),
        # Only if it is not the default.
        "repair": None if node_groups.is_repaired(env, pool) else "not by EKS",
    }
    if pool.aws_settings.efa:
        fields["network interfaces"] = karpenter.network_interfaces(pool)
    return {key: value for key, value in fields.items() if value}


def _iam_policies() -> Documents:
    policies = iam.controller_policies()
    return [
        *({"policy": name, "document": policy} for name, policy in sorted(policies.items())),
        {"policy": "interruption queue", "document": iam.queue_policy()},
        {"role": "nodes", "policies": list(iam.node_role_policies())},
    ]


def _magnum_cluster(env: Environment) -> dict[str, Any]:
    guard = magnum.cluster_guard(env)
    return {
        "cluster": magnum.cluster(env),
        "replaced for": sorted({**guard.fixed, **(guard.template or {})}),
        "template": magnum.cluster_of(env).template,
    }


def _magnum_group(env: Environment, pool: Pool) -> dict[str, Any]:
    flavor = pool.flavor
    assert flavor is not None  # checked when the environment was parsed
    per_node: dict[str, Any] = {"vcpu": flavor.vcpu, "memory_gib": flavor.memory}
    if flavor.gpu:
        per_node |= {"gpu": flavor.gpu, "gpus": flavor.gpus}
    return {
        "each node": per_node,
        "node group": magnum.node_group(env, pool),
        "nodes": magnum.selector(env, pool),
        "replaced for": sorted(magnum.pool_guard(env, pool).fixed),
    }
