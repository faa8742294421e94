"""The platform part of the program, the same on every kind of cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby

import pulumi

from components import objects, releases
from components.custom_resources import MigLayoutArgs, PoolNodesArgs, SimulatedNodesArgs
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
from infra.model.base import labels
from infra.model.environment import Environment
from infra.model.pool import allocatable, reset
from infra.model.pool.pool import Pool
from infra.plan import device_plugin, parts, pool_keeper, sharing
from infra.plan.karpenter import ec2_node_class, node_overlays, node_pools, node_role
from infra.plan.parts import Part
from infra.plan.startup import startup_change
from infra.program import workloads
from infra.program.target import Target


def platform(
    env: Environment,
    target: Target,
    parent: pulumi.Resource | None = None,
    prefix: str = "",
    only: Collection[str] = (),
) -> None:
    """Register the platform on a cluster; each component depends on those it needs.

    ``parent`` is that of every component and ``prefix`` starts its name, for a program with several
    platforms. With ``only``, of `SCOPE`, the rest is left to a GitOps controller.
    """
    planned = parts.parts(env)

    def after(*others: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=parent,
            providers={"kubernetes": target.provider},
            depends_on=(*target.ready, *others),
            deleted_with=target.deleted_with,
        )

    def create(
        kind: type[ManifestsComponent], name: str, part: str, *others: pulumi.Resource
    ) -> list[pulumi.Resource]:
        if part not in planned:
            return []
        return [kind(f"{prefix}{name}", ManifestsArgs(manifests=planned[part].manifests), after(*others))]

    def install(
        kind: type[ReleaseComponent], name: str, part: str, *others: pulumi.Resource
    ) -> list[pulumi.Resource]:
        if part not in planned:
            return []
        args = ReleaseArgs(release=planned[part].release, later=planned[part].manifests)
        return [kind(f"{prefix}{name}", args, after(*others))]

    def manifests(part: str) -> tuple[Manifest, ...]:
        return planned[part].manifests if part in planned else ()

    if only:
        pools = NodePools(f"{prefix}pools", _nodes(env, target.kubeconfig, ()), after())
        if "layouts" in only:
            MigLayouts(f"{prefix}mig", _mig_layouts(env, target.kubeconfig), after(pools))
        if "karpenter" in planned:
            ElasticPools(f"{prefix}elastic", _elastic(env, target.subnets), after(*target.karpenter, pools))
        return
    (namespaces,) = create(objects.Namespaces, "namespaces", "namespaces")
    config_maps = objects.GpuSharingArgs(
        device_plugin=sharing.device_plugin_config_map(env), mig_parted=sharing.mig_parted_config_map(env)
    )
    shared = objects.GpuSharing(f"{prefix}sharing", config_maps, after(namespaces))
    # A node's label names a key of the new ConfigMap, so it changes late: just before the release.
    pools = NodePools(f"{prefix}pools", _nodes(env, target.kubeconfig, manifests("nodes")), after(shared))
    # Created after the pools and deleted before them: it would restore the labels that they remove.
    create(objects.PoolKeeper, "pool-keeper", "pool-keeper", namespaces, pools)
    monitored: list[pulumi.Resource] = []
    if {"monitoring", "monitoring-rules"} & planned.keys():  # without GPUs there may be no rules
        part = planned.get("monitoring")  # none if the cluster has both a Prometheus and an exporter
        release = part.release if part and part.releases else None
        later = (*manifests("monitoring-rules"), *manifests("dashboards"))
        args = MonitoringArgs(release=release, counters=manifests("monitoring"), objects=later)
        monitored += Monitoring(f"{prefix}monitoring", args, after(namespaces, pools)).installed
    before_elastic = _operands(env, planned, target.kubeconfig, prefix, after(shared, pools, *monitored))
    operator = before_elastic[0] if before_elastic else pools
    layouts = MigLayouts(f"{prefix}mig", _mig_layouts(env, target.kubeconfig), after(operator))
    # Node feature discovery, of which the operator's rule is an object, comes with the GPU operator.
    network = install(releases.NetworkOperator, "network-operator", "network-operator", namespaces, operator)
    install(releases.DcgmExporter, "dcgm-exporter", "dcgm-exporter", operator, *monitored)
    # Created before the pools with nodes that wait for it, and deleted after them.
    before_elastic += create(objects.ReadinessGate, "readiness-gate", "readiness-gate", namespaces, pools)
    # The driver reads a node's MIG slices only when it starts, so it comes after the layouts.
    claims = install(releases.DraDriver, "dra", "dra-driver", operator, layouts)
    ready = [namespaces, layouts, *before_elastic, *claims, *network]
    if "karpenter" in planned:
        before_elastic += target.karpenter
        ready.append(ElasticPools(f"{prefix}elastic", _elastic(env, target.subnets), after(*before_elastic)))
    ready += create(objects.Scheduler, "packer", "scheduler", namespaces)
    ready += create(objects.HealthLoop, "health", "health", namespaces, operator, *monitored)
    queues_component = None
    if part := planned.get("queues"):
        # Its webhooks must answer before pods are created in the teams' namespaces.
        queues_args = QueuesArgs(
            release=part.release if part.releases else None,
            manifests=part.manifests,
            kubeconfig=target.kubeconfig,
            context=env.context,
        )
        queues_component = Queues(f"{prefix}queues", queues_args, after(namespaces, pools))
        ready.append(queues_component)
    # Its CRDs come before the workloads' objects, and it must run until those are deleted (finalizer).
    scaled_by = install(releases.Scaling, "scaling", "scaling", namespaces)
    served_by: list[pulumi.Resource] = []
    if part := planned.get("kserve"):
        # As KEDA: CRDs and webhooks before the workloads' objects, and the finalizers of those after.
        served_by.append(KServe(f"{prefix}kserve", KServeArgs(releases=part.releases), after(namespaces)))
    ready += create(objects.Room, "room", "room", *ready)
    create(objects.Admission, "admission", "admission", namespaces)
    ready += create(objects.Notebooks, "notebooks", "notebooks", namespaces)
    items = [
        workloads.arguments(env, work, target.kubeconfig, scaled_by, served_by) for work in env.workloads
    ]
    after_all = after(*ready, *scaled_by, *served_by)
    Workloads(f"{prefix}workloads", WorkloadsArgs(workloads=items, queues=queues_component), after_all)


def _operands(
    env: Environment,
    planned: Mapping[str, Part],
    kubeconfig: pulumi.Input[str],
    prefix: str,
    opts: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """NVIDIA's GPU operator, or its device plugin alone; none if the cluster has its own operator.

    Each is an alias of the other, so that a changed mode deletes the old one before the new one is created:
    together they would allocate the same GPUs, under names that both charts use.
    """
    operator, plugin = f"{prefix}gpu-operator", f"{prefix}device-plugin"
    cluster = {
        "kubeconfig": kubeconfig,
        "context": env.context,
        "pools": sorted(pool.name for pool in env.pools if pool.gpus),
    }
    if part := planned.get("device-plugin"):
        opts.aliases = [pulumi.Alias(name=operator, type_="gpuform:platform:GpuOperator")]
        runtime = device_plugin.runtime_class(env)
        before = {"runtime-class": runtime} if runtime else {}
        return [
            releases.DevicePlugin(
                plugin, ReleaseArgs(release=part.release, before=before, cluster=cluster), opts
            )
        ]
    if part := planned.get("gpu-operator"):
        opts.aliases = [pulumi.Alias(name=plugin, type_="gpuform:platform:DevicePlugin")]
        own = {**cluster, "simulated": env.is_simulated}
        args = ReleaseArgs(release=part.release, cluster=own)
        return [releases.GpuOperator(operator, args, opts)]
    return []


def _nodes(env: Environment, kubeconfig: pulumi.Input[str], simulated: Sequence[Manifest]) -> NodePoolsArgs:
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
    return NodePoolsArgs(pools=pools, simulated=_simulated(simulated, kubeconfig, env.context))


def _simulated(
    manifests: Sequence[Manifest], kubeconfig: pulumi.Input[str], context: str | None
) -> dict[str, SimulatedNodesArgs]:
    """By pool; its nodes differ only in their names and in the label with it."""
    pools = {}
    for pool, group in groupby(manifests, lambda node: str(node["metadata"]["labels"][labels.POOL])):
        nodes = list(group)
        metadata = nodes[0]["metadata"]
        pools[pool] = SimulatedNodesArgs(
            kubeconfig=kubeconfig,
            context=context,
            labels={key: value for key, value in metadata["labels"].items() if key != labels.HOSTNAME},
            annotations=metadata["annotations"],
            taints=nodes[0].get("spec", {}).get("taints", ()),
            nodes={node["metadata"]["name"]: {} for node in nodes},
        )
    return pools


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
            layout=sharing.layout_content(pool),
            # GPUs allocated by claim are not a resource, whatever their layout.
            offers=allocatable.summary(pool) or {labels.NVIDIA_GPU: 0},
            may_be_empty=pool.hosts is not None or None,
            kept=pool in kept_pools or None,
            expected=None if pool in kept_pools else pool.min_nodes or None,
            in_use=pool.relayout.in_use if pool.relayout else None,
            max_unavailable=pool.relayout.max_unavailable if pool.relayout else None,
            timeout_seconds=_timeout_s(pool),
            config_map=config_map["metadata"]["name"] if config_map else None,
        )
        for pool in env.pools
        if (config := sharing.live_layout(env, pool))
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
