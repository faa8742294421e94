"""The platform part of the program, the same on every kind of cluster."""

from __future__ import annotations

import pulumi

from components.args import EnvironmentArgs, ReleaseArgs
from components.dcgm_exporter import DcgmExporter
from components.device_plugin import DevicePlugin
from components.dra_driver import DraDriver
from components.elastic_pools import ElasticPools, ElasticPoolsArgs
from components.gpu_operator import GpuOperator
from components.gpu_sharing import GpuSharing
from components.health import HealthLoop
from components.kserve import KServe
from components.mig_layouts import MigLayouts, MigLayoutsArgs
from components.monitoring import Monitoring
from components.namespaces import Namespaces
from components.node_pools import NodePools, NodePoolsArgs
from components.notebooks import Notebooks
from components.pool_keeper import PoolKeeper
from components.queues import Queues, QueuesArgs
from components.readiness_gate import ReadinessGate
from components.room import Room
from components.scaling import Scaling
from components.scheduler import Scheduler
from components.workloads import Workloads, WorkloadsArgs
from infra.model.environment import Environment
from infra.plan import dcgm_exporter, dra, notebooks, pool_keeper, room
from infra.plan.startup import any_gated
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

    args = EnvironmentArgs(environment=env)
    namespaces = Namespaces(f"{prefix}namespaces", args, after())
    sharing = GpuSharing(f"{prefix}sharing", args, after(namespaces))
    # A node's label names a key of the new ConfigMap, so it changes late: just before the release.
    pools = NodePools(
        f"{prefix}pools", NodePoolsArgs(environment=env, kubeconfig=on.kubeconfig), after(sharing)
    )
    if pool_keeper.kept(env):
        # Created after the pools and deleted before them: it would restore the labels that they remove.
        PoolKeeper(f"{prefix}pool-keeper", args, after(namespaces, pools))
    measured: list[pulumi.Resource] = []
    if env.monitoring:
        # Its release brings the CRDs of the operands' ServiceMonitor and of every rule.
        measured.append(Monitoring(f"{prefix}monitoring", args, after(namespaces, pools)))
    before = _operands(env, prefix, after(sharing, pools, *measured))
    operator = before[0] if before else pools
    layouts = MigLayouts(
        f"{prefix}mig", MigLayoutsArgs(environment=env, kubeconfig=on.kubeconfig), after(operator)
    )
    exporter = dcgm_exporter.release(env)
    if exporter:
        DcgmExporter(f"{prefix}dcgm-exporter", ReleaseArgs(release=exporter), after(operator, *measured))
    if any_gated(env):
        # Created before the pools with nodes that wait for it, and deleted after them.
        before.append(ReadinessGate(f"{prefix}readiness-gate", args, after(operator)))
    ready = [namespaces, layouts, *before]
    claims = dra.release(env)
    if claims:
        # The driver reads a node's MIG slices only when it starts, so it comes after the layouts.
        ready.append(DraDriver(f"{prefix}dra", ReleaseArgs(release=claims), after(operator, layouts)))
    if any(env.by_karpenter(pool) for pool in env.pools):
        elastic = ElasticPoolsArgs(environment=env, subnets=on.subnets)
        ready.append(ElasticPools(f"{prefix}elastic", elastic, after(*before)))
    if env.packs:
        ready.append(Scheduler(f"{prefix}packer", args, after(namespaces)))
    if env.health:
        ready.append(HealthLoop(f"{prefix}health", args, after(namespaces, operator, *measured)))
    queues = None
    if env.queues:
        # Its webhooks must answer before pods are created in the teams' namespaces.
        declared = QueuesArgs(environment=env, kubeconfig=on.kubeconfig)
        queues = Queues(f"{prefix}queues", declared, after(namespaces, pools))
        ready.append(queues)
    scaled_by: list[pulumi.Resource] = []
    if env.scaled:
        # Its CRDs come before the workloads' objects, and it must run until those are deleted (finalizer).
        scaled_by.append(Scaling(f"{prefix}scaling", args, after(namespaces)))
    served_by: list[pulumi.Resource] = []
    if env.served:
        # As KEDA: CRDs and webhooks before the workloads' objects, and the finalizers of those after.
        served_by.append(KServe(f"{prefix}kserve", args, after(namespaces)))
    if room.manifests(env):
        ready.append(Room(f"{prefix}room", args, after(*ready)))
    if notebooks.manifests(env):
        ready.append(Notebooks(f"{prefix}notebooks", args, after(namespaces)))
    works = WorkloadsArgs(
        environment=env,
        kubeconfig=on.kubeconfig,
        queues=queues,
        scaled_by=scaled_by,
        served_by=served_by,
    )
    Workloads(f"{prefix}workloads", works, after(*ready, *scaled_by, *served_by))


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
        return [DevicePlugin(plugin, EnvironmentArgs(environment=env), opts)]
    opts.aliases = [pulumi.Alias(name=plugin, type_="gpuform:platform:DevicePlugin")]
    return [GpuOperator(operator, EnvironmentArgs(environment=env), opts)]
