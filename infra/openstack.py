"""The OpenStack part of the program. Other targets do not import it, so they do not load its SDK."""

from __future__ import annotations

import pulumi
import pulumi_openstack as openstack
from pulumi_openstack import containerinfra

from components.magnum_cluster import MagnumCluster, MagnumClusterArgs
from components.magnum_node_groups import NodeGroups, NodeGroupsArgs
from components.replacement_guards import ReplacementGuards, ReplacementGuardsArgs
from infra import guards
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of
from infra.target import Target


def cluster(env: Environment) -> Target:
    """Register the guards, the cluster, then its node groups.

    The provider gets only the cloud's name and the region: credentials stay in clouds.yaml or in the OS_
    variables, and never enter the stack's state.
    """
    declared = cluster_of(env)
    losses = guards.of_cluster(env)
    provider = openstack.Provider(f"{env.name}-openstack", cloud=declared.cloud, region=declared.region)
    template = _template(env, provider)
    # Not named after the environment: to the engine, a renamed guard would be a new resource.
    replaced = ReplacementGuards("guard", ReplacementGuardsArgs(environment=env, template=template))
    after = pulumi.ResourceOptions(providers=[provider], depends_on=[losses, replaced])
    args = MagnumClusterArgs(environment=env, template=template, protect=guards.protected(env))
    on = MagnumCluster(env.name, args, after)
    inside = guards.of_contents(env, on.kubeconfig)
    later = pulumi.ResourceOptions.merge(after, pulumi.ResourceOptions(depends_on=[inside]))
    groups = NodeGroups("groups", NodeGroupsArgs(environment=env, cluster_id=on.cluster_id), later)
    # Replacing the cluster deletes its objects as well. The engine would delete them first, through
    # a provider that it has closed by then (pulumi issue 14650). Of cluster and provider, only the provider
    # counts as deleted.
    return Target(kubeconfig=on.kubeconfig, provider=on.provider, ready=(groups,), gone_with=on.provider)


def _template(env: Environment, provider: openstack.Provider) -> pulumi.Output[str] | None:
    """Id of the cloud's template of the declared name; None if the stack makes its own."""
    named = cluster_of(env).template
    if not isinstance(named, str):
        return None
    opts = pulumi.InvokeOutputOptions(provider=provider)
    return containerinfra.get_cluster_template_output(name=named, opts=opts).id
