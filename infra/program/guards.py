"""The stack's two guards against losses: of the cluster, and of what is in it."""

from __future__ import annotations

import pulumi

from components.custom_resources import LossGuard, LossGuardArgs
from infra.model.environment import Environment
from infra.model.openstack.cluster import OpenstackCluster
from infra.plan import losses


def cluster_guard(env: Environment) -> LossGuard:
    """The guard of the cluster, before every other resource of the stack.

    Not named after the environment: to the engine, a renamed guard would be a new resource.
    """
    args = LossGuardArgs(
        environment=env.name,
        fixed=losses.cluster(env),
        lost=losses.lost_with_cluster(env),
        acknowledged=env.acknowledge_loss,
    )
    return LossGuard("losses", args)


def is_protected(env: Environment) -> bool:
    """Whether the engine refuses to delete or replace the cluster and what it cannot be without."""
    may_replace = isinstance(env.cluster, OpenstackCluster) and env.cluster.allow_replace
    return not may_replace and env.name not in env.acknowledge_loss


def contents_guard(env: Environment, kubeconfig: pulumi.Input[str] | None) -> LossGuard:
    """The guard of pools, namespaces, queues and volumes: after the cluster, and before everything in it."""
    args = LossGuardArgs(
        environment=env.name,
        fixed=losses.contents(env),
        lost=(),
        acknowledged=env.acknowledge_loss,
        kubeconfig=kubeconfig,
        context=env.context,
        pools=losses.pools(env),
        namespaces=losses.namespaces(env),
        queues=losses.queues(env),
        volumes=losses.volumes(env),
    )
    return LossGuard("losses-inside", args)
