"""What a stack consists of: the only list of the charts and objects that its program creates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.model.environment import Environment
from infra.plan import (
    admission,
    device_plugin,
    dra,
    eks,
    gpu_operator,
    health,
    karpenter,
    kserve,
    monitoring,
    nodes,
    notebooks,
    pool_keeper,
    prometheus_files,
    queues,
    quotas,
    rdma,
    readiness_gate,
    scaling,
    scheduler,
    sharing,
    workloads,
)
from infra.plan.charts import ChartRelease
from infra.plan.manifest import Manifest


@dataclass(frozen=True)
class Part:
    """Charts and objects that belong together."""

    name: str
    releases: tuple[ChartRelease, ...]
    manifests: tuple[Manifest, ...]

    @property
    def release(self) -> ChartRelease:
        (release,) = self.releases
        return release


def parts(env: Environment) -> Mapping[str, Part]:
    """The parts by name, without empty ones; none if own hosts have joined no cluster."""
    if not env.has_cluster:
        return {}
    found = [
        Part(name, tuple(filter(None, releases)), tuple(filter(None, manifests)))
        for name, releases, manifests in _parts(env)
    ]
    return {part.name: part for part in found if part.releases or part.manifests}


def _parts(
    env: Environment,
) -> Iterator[tuple[str, Iterable[ChartRelease | None], Iterable[Manifest | None]]]:
    mode = env.gpu_operator.mode
    yield "namespaces", (), quotas.namespaces(env)
    yield "sharing", (), (sharing.device_plugin_config_map(env), sharing.mig_parted_config_map(env))
    yield "nodes", (), (node for pool in env.pools for node in nodes.simulated_nodes(env, pool))
    yield "pool-keeper", (), pool_keeper.manifests(env)
    if env.monitoring:
        # The release brings the CRDs of the operands' ServiceMonitor and of every rule.
        yield "monitoring", (monitoring.release(env),), monitoring.objects_before(env)
        files = prometheus_files.config_map(env)
        rules = (files,) if files else (*monitoring.rule_objects(env), *monitoring.monitors(env))
        yield "monitoring-rules", (), rules
        yield "dashboards", (), monitoring.dashboard_objects(env)
    if mode == "operator":
        yield "gpu-operator", (gpu_operator.release(env),), ()
    if mode == "device_plugin":
        yield "device-plugin", (device_plugin.release(env),), ()
        yield "runtime-class", (), (device_plugin.runtime_class(env),)
    yield "dcgm-exporter", (device_plugin.exporter_release(env),), ()
    yield "efa-device-plugin", (device_plugin.efa_release(env),), ()
    yield "network-operator", (rdma.release(env),), (rdma.policy(env),)
    yield "readiness-gate", (), readiness_gate.manifests(env)
    yield "dra-driver", (dra.release(env),), ()
    if pools := [pool for pool in env.pools if pool.by_karpenter]:
        role = karpenter.node_role(env)
        objects = (
            manifest
            for pool in pools
            for manifest in (
                karpenter.ec2_node_class(env, pool, role, env.name),
                *karpenter.node_overlays(env, pool),
                *karpenter.node_pools(env, pool),
            )
        )
        yield "karpenter", (eks.karpenter_crd_release(env), eks.karpenter_release(env)), objects
    yield "scheduler", (), scheduler.manifests(env)
    yield "health", (), health.manifests(env)
    yield "queues", (queues.release(env),), queues.manifests(env)
    yield "scaling", (scaling.release(env),), ()
    yield "kserve", kserve.releases(env), ()
    yield "room", (), quotas.manifests(env)
    yield "admission", (), admission.manifests(env)
    yield "notebooks", (), notebooks.manifests(env)
    yield "workloads", (), workloads.manifests(env)
