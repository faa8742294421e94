"""The OpenStack part of the program. Other targets do not import it, so they do not load its SDK."""

from __future__ import annotations

import pulumi
import pulumi_openstack as openstack
from pulumi_openstack import containerinfra

from components.custom_resources import ReplacementGuardArgs
from components.magnum import (
    MagnumCluster,
    MagnumClusterArgs,
    NodeGroup,
    NodeGroups,
    NodeGroupsArgs,
    ReplacementGuards,
    ReplacementGuardsArgs,
)
from infra.model.environment import Environment
from infra.plan import magnum
from infra.plan.magnum import cluster_of
from infra.program import guards
from infra.program.target import Target


def cluster(env: Environment) -> Target:
    """Register the guards, the cluster, then its node groups.

    The provider gets only the cloud's name and the region: credentials stay in clouds.yaml or in the OS_
    variables, and never enter the stack's state.
    """
    declared = cluster_of(env)
    losses_guard = guards.cluster_guard(env)
    provider = openstack.Provider(f"{env.name}-openstack", cloud=declared.cloud, region=declared.region)
    by_provider = pulumi.InvokeOutputOptions(provider=provider)
    template = containerinfra.get_cluster_template_output(name=declared.template, opts=by_provider).id
    # Not named after the environment: to the engine, a renamed guard would be a new resource.
    replacement_guards = ReplacementGuards("guard", ReplacementGuardsArgs(guards=_guards(env, template)))
    after = pulumi.ResourceOptions(providers=[provider], depends_on=[losses_guard, replacement_guards])
    created = MagnumCluster(env.name, _cluster(env, template), after)
    contents_guard = guards.contents_guard(env, created.kubeconfig)
    after_contents = pulumi.ResourceOptions.merge(after, pulumi.ResourceOptions(depends_on=[contents_guard]))
    groups = NodeGroups("groups", _groups(env, created.cluster_id), after_contents)
    # Replacing the cluster deletes its objects as well. The engine would delete them first, through
    # a provider that it has closed by then (pulumi issue 14650). Of cluster and provider, only the provider
    # counts as deleted.
    return Target(
        kubeconfig=created.kubeconfig,
        provider=created.provider,
        ready=(groups,),
        deleted_with=created.provider,
    )


def _guards(env: Environment, template: pulumi.Output[str]) -> dict[str, ReplacementGuardArgs]:
    """With the id of the template; its name can be given to another template."""
    return {
        guard.name: ReplacementGuardArgs(
            what=guard.subject,
            at=guard.prefix,
            fixed=guard.fixed,
            template=dict.fromkeys(guard.template, template) if guard.template else guard.template,
            allow=guard.allow,
            allow_replace=guard.allowed,
            lost=guard.lost,
            acknowledged=env.acknowledge_loss or None,
            cloud=guard.cloud,
        )
        for guard in magnum.guards(env)
    }


def _cluster(env: Environment, template: pulumi.Output[str]) -> MagnumClusterArgs:
    return MagnumClusterArgs(
        cluster=magnum.cluster(env),
        region=cluster_of(env).region,
        template=template,
        minutes=magnum.wait_minutes(env),
        trigger=magnum.cluster_guard(env).trigger,
        upgrades=magnum.upgrades(env),
        protect=guards.is_protected(env),
    )


def _groups(env: Environment, cluster_id: pulumi.Output[str]) -> NodeGroupsArgs:
    groups = {
        pool.name: NodeGroup(
            arguments=magnum.node_group(env, pool),
            trigger=magnum.pool_guard(env, pool).trigger,
            elastic=pool.elastic is not None,
        )
        for pool in env.pools
    }
    return NodeGroupsArgs(groups=groups, cluster_id=cluster_id, minutes=magnum.wait_minutes(env))
