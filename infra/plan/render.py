"""Everything that an environment creates, as files for review."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.model.hosts.cluster import HostsCluster
from infra.model.pool import allocatable
from infra.plan import (
    cloud_files,
    cost,
    device_plugin,
    dra,
    gpu_operator,
    health,
    inventory,
    kserve,
    monitoring,
    nodes,
    notebooks,
    pool_keeper,
    queues,
    quotas,
    readiness_gate,
    scaling,
    scheduler,
    sharing,
    workloads,
)
from infra.plan.bill import to_document
from infra.strict_yaml import Dumper


def render(
    env: Environment, keys: Mapping[str, str] | None = None, prices: PriceList | None = None
) -> dict[str, str]:
    """Text by file name: the resolved environment, every manifest and the chart's values.

    The same environment gives the same bytes; no cluster or cloud is contacted. ``keys`` has the texts of the
    keys that sign own hosts' repositories, by path; ``prices`` is us-east-1's list if omitted.
    """
    files = {
        "environment.yaml": _documents([env.resolved()]),
        "cost.yaml": _documents([to_document(cost.bill(env, prices or PriceList()))]),
        "pools.yaml": _documents([_pool(env, index) for index in range(len(env.pools))]),
    }
    if isinstance(env.cluster, HostsCluster):
        content = inventory.inventory(env, keys or {})
        files["inventory.json"] = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    if env.has_cluster:
        files |= _platform(env)
    return dict(sorted(files.items()))


def _platform(env: Environment) -> dict[str, str]:
    mode = env.gpu_operator.mode
    is_plugin_only = mode == "device_plugin"
    dra_release = dra.release(env)
    monitoring_release, exporter_release = monitoring.release(env), device_plugin.exporter_release(env)
    kueue, keda_release = queues.release(env), scaling.release(env)
    files = {"namespaces.yaml": _documents(quotas.namespaces(env))}
    if mode != "existing":
        release = device_plugin.release(env) if is_plugin_only else gpu_operator.release(env)
        files[f"{'device-plugin' if is_plugin_only else 'gpu-operator'}.yaml"] = _documents(
            [cloud_files.release_document(release)]
        )
    runtime = device_plugin.runtime_class(env) if is_plugin_only else None
    monitoring_objects = monitoring.objects_after(env)
    config_maps = [sharing.device_plugin_config_map(env), sharing.mig_parted_config_map(env)]
    documents = {
        "sharing.yaml": [manifest for manifest in config_maps if manifest],
        "runtime-class.yaml": [runtime] if runtime else [],
        "monitoring.yaml": [cloud_files.release_document(monitoring_release), *monitoring.objects_before(env)]
        if monitoring_release
        else [],
        "monitoring-rules.yaml": [item for item in monitoring_objects if item["kind"] == "PrometheusRule"],
        "dashboards.yaml": [item for item in monitoring_objects if item["kind"] == "ConfigMap"],
        "dcgm-exporter.yaml": [cloud_files.release_document(exporter_release)] if exporter_release else [],
        "dra-driver.yaml": [cloud_files.release_document(dra_release)] if dra_release else [],
        "nodes.yaml": [node for pool in env.pools for node in nodes.simulated_nodes(env, pool)],
        "pool-keeper.yaml": list(pool_keeper.manifests(env)),
        "readiness-gate.yaml": list(readiness_gate.manifests(env)),
        "health.yaml": list(health.manifests(env)),
        "scheduler.yaml": list(scheduler.manifests(env)),
        "queues.yaml": [cloud_files.release_document(kueue), *queues.manifests(env)] if kueue else [],
        "scaling.yaml": [cloud_files.release_document(keda_release)] if keda_release else [],
        "kserve.yaml": [cloud_files.release_document(item) for item in kserve.releases(env)],
        "room.yaml": list(quotas.manifests(env)),
        "notebooks.yaml": list(notebooks.manifests(env)),
        "workloads.yaml": list(workloads.manifests(env)),
        **cloud_files.cloud_documents(env),
    }
    return files | {name: _documents(manifests) for name, manifests in documents.items() if manifests}


def _pool(env: Environment, index: int) -> dict[str, Any]:
    pool = env.pools[index]
    fields: dict[str, Any] = {
        "pool": pool.name,
        "labels": sharing.pool_labels(env, pool),
        "taints": sharing.pool_taints(env, pool),
        "offered": allocatable.summary(pool),
    }
    claimable = allocatable.claimable(pool)
    if claimable:
        fields["claimable"] = claimable
    if pool.selector is not None:
        fields["selector"] = dict(pool.selector)
    if pool.hosts:
        fields["hosts"] = [host.name for host in pool.hosts]
    if pool.gpus and env.operator_strategy is None:
        fields["mig_strategy"] = pool.strategy
    memory = allocatable.mps_memory_mib(pool)
    if memory is not None:
        fields["mps"] = {"memory_mib_per_client": memory}
    mig = sharing.mig_config_name(pool)
    if mig is not None and env.ownership.mig != "none":
        fields["mig"] = mig
    if pool.relayout is not None:
        fields["relayout"] = pool.relayout.model_dump()
    return fields


class _Dumper(Dumper):
    """Dumps multi-line texts as blocks, so that a configuration inside a ConfigMap is readable."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _documents(values: Iterable[Any]) -> str:
    return yaml.dump_all(list(values), Dumper=_Dumper, sort_keys=True, width=1000, explicit_start=True)
