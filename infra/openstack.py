"""The OpenStack half of the program; another target never imports this module, nor the SDK with it."""

from __future__ import annotations

import pulumi
import pulumi_openstack as openstack
from pulumi_openstack import containerinfra

from components.magnum_cluster import MagnumCluster, MagnumClusterArgs
from components.magnum_node_groups import NodeGroups, NodeGroupsArgs
from components.replacement_guards import ReplacementGuards, ReplacementGuardsArgs
from infra.model.environment import Environment
from infra.plan.magnum import cluster_of
from infra.target import Target


def cluster(env: Environment) -> Target:
    """The guards, the cluster, then its node groups.

    The provider is told which cloud and region alone: who may do what is in clouds.yaml or in the OS_
    variables, and never in the stack's state.
    """
    declared = cluster_of(env)
    provider = openstack.Provider(f"{env.name}-openstack", cloud=declared.cloud, region=declared.region)
    template = _template(env, provider)
    # Not named after the environment: to the engine a guard of another name would be a new one.
    guards = ReplacementGuards("guard", ReplacementGuardsArgs(environment=env, template=template))
    after = pulumi.ResourceOptions(providers=[provider], depends_on=[guards])
    on = MagnumCluster(env.name, MagnumClusterArgs(environment=env, template=template), after)
    groups = NodeGroups("groups", NodeGroupsArgs(environment=env, cluster_id=on.cluster_id), after)
    # A cluster that is replaced takes its objects along. The engine would delete them before it, and through
    # a provider that it has closed by then (pulumi issue 14650); of the two, only that one counts as deleted.
    return Target(kubeconfig=on.kubeconfig, provider=on.provider, ready=(groups,), gone_with=on.provider)


def _template(env: Environment, provider: openstack.Provider) -> pulumi.Output[str] | None:
    """Id of the template that the cloud has under the declared name; None for our own."""
    named = cluster_of(env).template
    if not isinstance(named, str):
        return None
    opts = pulumi.InvokeOutputOptions(provider=provider)
    return containerinfra.get_cluster_template_output(name=named, opts=opts).id
