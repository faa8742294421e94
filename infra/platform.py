"""The platform part of the program, the same on every kind of cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pulumi

from components import objects, releases
from components.custom_resources import MigLayoutArgs, PoolNodesArgs
from components.elastic_pools import ElasticPool, ElasticPools, ElasticPoolsArgs
from components.kserve import KServe, KServeArgs
from components.manifest import Manifest
from components.node_pools import MigLayouts, MigLayoutsArgs, NodePools, NodePoolsArgs
from components.objects import ManifestsArgs, ManifestsComponent
from components.releases import (
    Monitoring,
    MonitoringArgs,
    Queues,
    QueuesArgs,
    ReleaseArgs,
    ReleaseComponent,
)
from components.workloads import Workloads, WorkloadsArgs
from infra import workloads
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool import allocatable, reset
from infra.model.pool.pool import Pool
from infra.plan import (
    device_plugin,
    dra,
    gpu_operator,
    health,
    kserve,
    mig_parted,
    monitoring,
    notebooks,
    pool_keeper,
    quotas,
    readiness_gate,
    scaling,
    scheduler,
    sharing,
)
from infra.plan import queues as kueue
from infra.plan.charts import ChartRelease
from infra.plan.karpenter import node_overlays, node_pools
from infra.plan.node_class import ec2_node_class, node_role
from infra.plan.nodes import simulated_nodes
from infra.plan.quotas import namespaces as namespaces_of
from infra.plan.startup import startup_change
from infra.target import Target


def platform(
    env: Environment, target: Target, parent: pulumi.Resource | None = None, prefix: str = ""
) -> None:
    """Register the platform on a cluster; each component depends on those it needs.

    ``parent`` is that of every component and ``prefix`` starts its name, for a program with several
    platforms.
    """

    def after(*parts: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=parent,
            providers={"kubernetes": target.provider},
            depends_on=(*target.ready, *parts),
            deleted_with=target.deleted_with,
        )

    def create(
        kind: type[ManifestsComponent], name: str, manifests: Iterable[Manifest], *parts: pulumi.Resource
    ) -> pulumi.Resource:
        return kind(f"{prefix}{name}", ManifestsArgs(manifests=manifests), after(*parts))

    def install(
        kind: type[ReleaseComponent], name: str, release: ChartRelease, *parts: pulumi.Resource
    ) -> pulumi.Resource:
        return kind(f"{prefix}{name}", ReleaseArgs(release=release), after(*parts))

    namespaces = create(objects.Namespaces, "namespaces", namespaces_of(env))
    config_maps = objects.GpuSharingArgs(
        device_plugin=sharing.device_plugin_config_map(env), mig_parted=sharing.mig_parted_config_map(env)
    )
    shared = objects.GpuSharing(f"{prefix}sharing", config_maps, after(namespaces))
    # A node's label names a key of the new ConfigMap, so it changes late: just before the release.
    pools = NodePools(f"{prefix}pools", _nodes(env, target.kubeconfig), after(shared))
    if keeper_objects := pool_keeper.manifests(env):
        # Created after the pools and deleted before them: it would restore the labels that they remove.
        create(objects.PoolKeeper, "pool-keeper", keeper_objects, namespaces, pools)
    monitored: list[pulumi.Resource] = []
    if chart := monitoring.release(env):
        # Its release brings the CRDs of the operands' ServiceMonitor and of every rule.
        args = MonitoringArgs(
            release=chart, counters=monitoring.objects_before(env), objects=monitoring.objects_after(env)
        )
        monitored.append(Monitoring(f"{prefix}monitoring", args, after(namespaces, pools)))
    before_elastic = _operands(env, target.kubeconfig, prefix, after(shared, pools, *monitored))
    operator = before_elastic[0] if before_elastic else pools
    layouts = MigLayouts(f"{prefix}mig", _mig_layouts(env, target.kubeconfig), after(operator))
    if exporter := device_plugin.exporter_release(env):
        install(releases.DcgmExporter, "dcgm-exporter", exporter, operator, *monitored)
    if gate_objects := readiness_gate.manifests(env):
        # Created before the pools with nodes that wait for it, and deleted after them.
        before_elastic.append(create(objects.ReadinessGate, "readiness-gate", gate_objects, operator))
    ready = [namespaces, layouts, *before_elastic]
    if claims := dra.release(env):
        # The driver reads a node's MIG slices only when it starts, so it comes after the layouts.
        ready.append(install(releases.DraDriver, "dra", claims, operator, layouts))
    if any(pool.by_karpenter for pool in env.pools):
        ready.append(ElasticPools(f"{prefix}elastic", _elastic(env, target.subnets), after(*before_elastic)))
    if scheduler_objects := scheduler.manifests(env):
        ready.append(create(objects.Scheduler, "packer", scheduler_objects, namespaces))
    if health_objects := health.manifests(env):
        ready.append(create(objects.HealthLoop, "health", health_objects, namespaces, operator, *monitored))
    queues_component = None
    if chart := kueue.release(env):
        # Its webhooks must answer before pods are created in the teams' namespaces.
        queues_args = QueuesArgs(
            release=chart, manifests=kueue.manifests(env), kubeconfig=target.kubeconfig, context=env.context
        )
        queues_component = Queues(f"{prefix}queues", queues_args, after(namespaces, pools))
        ready.append(queues_component)
    scaled_by: list[pulumi.Resource] = []
    if keda := scaling.release(env):
        # Its CRDs come before the workloads' objects, and it must run until those are deleted (finalizer).
        scaled_by.append(install(releases.Scaling, "scaling", keda, namespaces))
    served_by: list[pulumi.Resource] = []
    if kserve_releases := kserve.releases(env):
        # As KEDA: CRDs and webhooks before the workloads' objects, and the finalizers of those after.
        served_by.append(KServe(f"{prefix}kserve", KServeArgs(releases=kserve_releases), after(namespaces)))
    if quota_objects := quotas.manifests(env):
        ready.append(create(objects.Room, "room", quota_objects, *ready))
    if notebook_objects := notebooks.manifests(env):
        ready.append(create(objects.Notebooks, "notebooks", notebook_objects, namespaces))
    items = [
        workloads.arguments(env, work, target.kubeconfig, scaled_by, served_by) for work in env.workloads
    ]
    after_all = after(*ready, *scaled_by, *served_by)
    Workloads(f"{prefix}workloads", WorkloadsArgs(workloads=items, queues=queues_component), after_all)


def _operands(
    env: Environment, kubeconfig: pulumi.Input[str], prefix: str, opts: pulumi.ResourceOptions
) -> list[pulumi.Resource]:
    """NVIDIA's GPU operator, or its device plugin alone; none if the cluster has its own operator.

    Each is an alias of the other, so that a changed mode deletes the old one before the new one is created:
    together they would allocate the same GPUs, under names that both charts use.
    """
    if env.gpu_operator.mode == "existing":
        return []
    operator, plugin = f"{prefix}gpu-operator", f"{prefix}device-plugin"
    if env.gpu_operator.mode == "device_plugin":
        opts.aliases = [pulumi.Alias(name=operator, type_="gpuform:platform:GpuOperator")]
        runtime = device_plugin.runtime_class(env)
        args = ReleaseArgs(
            release=device_plugin.release(env), before={"runtime-class": runtime} if runtime else {}
        )
        return [releases.DevicePlugin(plugin, args, opts)]
    opts.aliases = [pulumi.Alias(name=plugin, type_="gpuform:platform:DevicePlugin")]
    cluster = {"kubeconfig": kubeconfig, "context": env.context}
    return [
        releases.GpuOperator(operator, ReleaseArgs(release=gpu_operator.release(env), cluster=cluster), opts)
    ]


def _nodes(env: Environment, kubeconfig: pulumi.Input[str]) -> NodePoolsArgs:
    """Simulated nodes, and labels and taints of all others; those of Magnum's node groups are waited for."""
    pools = {
        pool.name: PoolNodesArgs(
            kubeconfig=kubeconfig,
            context=env.context,
            selector=selector,
            may_be_empty=pool.hosts is not None or None,
            joining=pool_keeper.awaited_nodes(env, pool),
            manager=pool_keeper.field_manager(env, pool),
            labels=sharing.pool_labels(env, pool),
            taints=sharing.pool_taints(env, pool),
            startup=startup_change(env, pool),
            sharing=sharing.device_plugin_change(env, pool),
        )
        for pool in env.pools
        if (selector := sharing.node_selector(env, pool))
    }
    simulated = [node for pool in env.pools for node in simulated_nodes(env, pool)]
    return NodePoolsArgs(pools=pools, simulated=simulated)


def _mig_layouts(env: Environment, kubeconfig: pulumi.Input[str]) -> MigLayoutsArgs:
    """Layouts of the MIG-capable pools, those without slices included.

    Nodes that join with their layout are not: Karpenter's, which are created with its label, and those of an
    image that partitions its GPUs at boot.
    """
    kept_pools = pool_keeper.kept_pools(env)
    config_map = sharing.mig_parted_config_map(env)
    layouts = {
        pool.name: MigLayoutArgs(
            kubeconfig=kubeconfig,
            context=env.context,
            selector=f"{labels.POOL}={pool.name}",
            config=config,
            layout=mig_parted.content(pool),
            # GPUs allocated by claim are not a resource, whatever their layout.
            offers=allocatable.summary(pool) or {labels.NVIDIA_GPU: 0},
            may_be_empty=pool.hosts is not None or None,
            kept=pool in kept_pools or None,
            in_use=pool.relayout.in_use if pool.relayout else None,
            max_unavailable=pool.relayout.max_unavailable if pool.relayout else None,
            timeout_seconds=_timeout_s(pool),
            config_map=config_map["metadata"]["name"] if config_map else None,
        )
        for pool in env.pools
        if (config := sharing.mig_config_name(pool)) and pool.has_live_layout and env.has_mig_manager
    }
    return MigLayoutsArgs(layouts=layouts)


def _timeout_s(pool: Pool) -> int | None:
    """The declared limit of a node's change; without one that of a reboot, or None for the resource's own."""
    declared = pool.relayout.timeout_seconds if pool.relayout else None
    return declared or (reset.TIMEOUT_S if pool.resets_by == "reboot" else None)


def _elastic(env: Environment, subnets: Mapping[str, pulumi.Output[str]]) -> ElasticPoolsArgs:
    """Pools that Karpenter provisions; ``subnets`` are ids by zone, in an existing VPC."""
    pools = [
        ElasticPool(
            node_class=ec2_node_class(env, pool, node_role(env), env.name, subnets),
            overlays=node_overlays(env, pool),
            node_pools=node_pools(env, pool),
        )
        for pool in env.pools
        if pool.by_karpenter
    ]
    return ElasticPoolsArgs(pools=pools)
