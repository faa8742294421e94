"""The platform part of the program, the same on every kind of cluster."""

from __future__ import annotations

from collections.abc import Iterable

import pulumi

from components import objects, releases
from components.elastic_pools import ElasticPools
from components.kserve import KServe, KServeArgs
from components.manifest import Manifest
from components.monitoring import Monitoring, MonitoringArgs
from components.node_pools import MigLayouts, NodePools
from components.objects import ManifestsArgs, ManifestsComponent
from components.queues import Queues, QueuesArgs
from components.releases import ReleaseArgs, ReleaseComponent
from components.workloads import Workloads, WorkloadsArgs
from infra import pools as nodes
from infra import workloads
from infra.model.environment import Environment
from infra.plan import (
    dcgm_exporter,
    device_plugin,
    dra,
    gpu_operator,
    health,
    kserve,
    monitoring,
    notebooks,
    pool_keeper,
    readiness_gate,
    room,
    scaling,
    scheduler,
    sharing,
)
from infra.plan import queues as kueue
from infra.plan.charts import ChartRelease
from infra.plan.workloads import namespaces as namespaces_of
from infra.target import Target


def platform(env: Environment, on: Target, within: pulumi.Resource | None = None, prefix: str = "") -> None:
    """Register the platform on a cluster; each component depends on those it needs.

    ``within`` is the parent of every component and ``prefix`` starts its name, for a program with several
    platforms.
    """

    def after(*parts: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=within,
            providers={"kubernetes": on.provider},
            depends_on=(*on.ready, *parts),
            deleted_with=on.gone_with,
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
    pools = NodePools(f"{prefix}pools", nodes.nodes(env, on.kubeconfig), after(shared))
    if keeper := pool_keeper.manifests(env):
        # Created after the pools and deleted before them: it would restore the labels that they remove.
        create(objects.PoolKeeper, "pool-keeper", keeper, namespaces, pools)
    measured: list[pulumi.Resource] = []
    if stack := monitoring.release(env):
        # Its release brings the CRDs of the operands' ServiceMonitor and of every rule.
        args = MonitoringArgs(release=stack, counters=monitoring.before(env), objects=monitoring.after(env))
        measured.append(Monitoring(f"{prefix}monitoring", args, after(namespaces, pools)))
    before = _operands(env, prefix, after(shared, pools, *measured))
    operator = before[0] if before else pools
    layouts = MigLayouts(f"{prefix}mig", nodes.mig_layouts(env, on.kubeconfig), after(operator))
    if exporter := dcgm_exporter.release(env):
        install(releases.DcgmExporter, "dcgm-exporter", exporter, operator, *measured)
    if gate := readiness_gate.manifests(env):
        # Created before the pools with nodes that wait for it, and deleted after them.
        before.append(create(objects.ReadinessGate, "readiness-gate", gate, operator))
    ready = [namespaces, layouts, *before]
    if claims := dra.release(env):
        # The driver reads a node's MIG slices only when it starts, so it comes after the layouts.
        ready.append(install(releases.DraDriver, "dra", claims, operator, layouts))
    if any(env.by_karpenter(pool) for pool in env.pools):
        ready.append(ElasticPools(f"{prefix}elastic", nodes.elastic(env, on.subnets), after(*before)))
    if packer := scheduler.manifests(env):
        ready.append(create(objects.Scheduler, "packer", packer, namespaces))
    if healer := health.manifests(env):
        ready.append(create(objects.HealthLoop, "health", healer, namespaces, operator, *measured))
    queues = None
    if planned := kueue.release(env):
        # Its webhooks must answer before pods are created in the teams' namespaces.
        declared = QueuesArgs(
            release=planned, manifests=kueue.manifests(env), kubeconfig=on.kubeconfig, context=env.context
        )
        queues = Queues(f"{prefix}queues", declared, after(namespaces, pools))
        ready.append(queues)
    scaled_by: list[pulumi.Resource] = []
    if keda := scaling.release(env):
        # Its CRDs come before the workloads' objects, and it must run until those are deleted (finalizer).
        scaled_by.append(install(releases.Scaling, "scaling", keda, namespaces))
    served_by: list[pulumi.Resource] = []
    if served := kserve.releases(env):
        # As KEDA: CRDs and webhooks before the workloads' objects, and the finalizers of those after.
        served_by.append(KServe(f"{prefix}kserve", KServeArgs(releases=served), after(namespaces)))
    if limits := room.manifests(env):
        ready.append(create(objects.Room, "room", limits, *ready))
    if culler := notebooks.manifests(env):
        ready.append(create(objects.Notebooks, "notebooks", culler, namespaces))
    works = [workloads.arguments(env, work, on.kubeconfig, scaled_by, served_by) for work in env.workloads]
    last = after(*ready, *scaled_by, *served_by)
    Workloads(f"{prefix}workloads", WorkloadsArgs(workloads=works, queues=queues), last)


def _operands(env: Environment, prefix: str, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
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
    return [releases.GpuOperator(operator, ReleaseArgs(release=gpu_operator.release(env)), opts)]
