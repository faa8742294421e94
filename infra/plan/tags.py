"""Tags of the instances and volumes of a pool, however they are launched."""

from __future__ import annotations

from infra.model import labels
from infra.model.environment import Environment
from infra.model.pool import Pool
from infra.plan.node_groups import cluster_of


def of_instances(env: Environment, pool: Pool) -> dict[str, str]:
    """The cluster's tags, and the instance's name, environment and pool.

    The provider's default tags apply to what Pulumi creates, not to what Karpenter or a node group launches.
    """
    own = {"Name": f"{env.name}-{pool.name}", labels.ENVIRONMENT: env.name, labels.POOL: pool.name}
    return {**cluster_of(env).tags, **own}
