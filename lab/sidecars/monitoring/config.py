"""Prometheus's configuration and flags, computed from the cluster's objects; pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from lab.sidecars.monitoring.cluster import MonitoringObjects, matches
from lab.sidecars.monitoring.scraping import ScrapeJobs, seconds
from lab.sidecars.monitoring.targets import Ports

Json = dict[str, Any]
RULES = "rules"
KUBECONFIG = "prometheus.kubeconfig"
# prometheus-operator's defaults, if the Prometheus sets none.
_INTERVAL, _TIMEOUT, _RETENTION = "30s", "10s", "24h"
_UNSUPPORTED = ("remoteWrite", "remoteRead", "thanos", "alerting", "additionalAlertManagerConfigs")
"""Fields that refer to other services, which do not run here."""


@dataclass(frozen=True)
class PrometheusFiles:
    """Texts of the configuration and of the rule files by name; ``notes`` name what is not supported here."""

    config: str
    rules: Mapping[str, str]
    notes: tuple[str, ...] = ()


def prometheus_files(world: MonitoringObjects, ports: Ports) -> PrometheusFiles:
    """All files for this world; ValueError or KeyError for an object that its kind's schema forbids."""
    notes = [f"Prometheus {name} is not run: only one runs here" for name in world.also]
    notes += [f"the Prometheus's {key} is not supported here" for key in _UNSUPPORTED if world.spec.get(key)]
    spec = world.spec
    role = "endpointslice" if spec.get("serviceDiscoveryRole") == "EndpointSlice" else "endpoints"
    interval = str(spec.get("scrapeInterval") or _INTERVAL)
    timeout = str(spec.get("scrapeTimeout") or _TIMEOUT)
    scraping = ScrapeJobs(KUBECONFIG, ports, interval, timeout, role, notes.append)
    jobs = [
        *(job for monitor in _selected(world, "serviceMonitor") for job in scraping.monitor(monitor)),
        *(job for monitor in _selected(world, "podMonitor") for job in scraping.of_pods.monitor(monitor)),
        *scraping.by_hand(_additional_jobs(world, notes)),
    ]
    document = {
        "global": {
            "scrape_interval": interval,
            "scrape_timeout": min(timeout, interval, key=seconds),
            "evaluation_interval": str(spec.get("evaluationInterval") or _INTERVAL),
            "external_labels": _external_labels(world),
        },
        "rule_files": [f"{RULES}/*.yaml"],
        "scrape_configs": jobs,
    }
    rules = {_file_name(rule): _rule_file(rule) for rule in _selected(world, "rule")}
    return PrometheusFiles(yaml.safe_dump(document, sort_keys=False), rules, tuple(dict.fromkeys(notes)))


def prometheus_flags(world: MonitoringObjects, ports: Ports) -> tuple[str, ...]:
    """Prometheus's arguments; a change requires a restart. It is run in the folder of its files."""
    spec = world.spec
    arguments = [
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--storage.tsdb.retention.time={spec.get('retention') or _RETENTION}",
        f"--web.listen-address=127.0.0.1:{ports.prometheus}",
        "--web.enable-lifecycle",
    ]
    if size := spec.get("retentionSize"):
        arguments.append(f"--storage.tsdb.retention.size={size}")
    return tuple(arguments)


def state_metrics_flags(deployment: Mapping[str, Any], ports: Ports, kubeconfig: str) -> tuple[str, ...]:
    """kube-state-metrics's arguments from its Deployment, except its addresses and kubeconfig."""
    own_flags = {
        "host": "127.0.0.1",
        "port": str(ports.state_metrics),
        "telemetry-host": "127.0.0.1",
        "telemetry-port": str(ports.telemetry),
        "kubeconfig": kubeconfig,
    }
    (container, *_) = deployment["spec"]["template"]["spec"]["containers"]
    args = [str(argument) for argument in container.get("args") or ()]
    # Sharding by pod needs environment variables that only a pod has.
    arguments = [
        argument
        for argument in args
        if _flag_name(argument) not in {*own_flags, "apiserver", "pod", "pod-namespace"}
    ]
    return (*arguments, *(f"--{name}={value}" for name, value in own_flags.items()))


def account(spec: Mapping[str, Any]) -> str:
    return str(spec.get("serviceAccountName") or "default")


def _external_labels(world: MonitoringObjects) -> Json:
    """The operator's external labels, so that an alert has the same labels here as elsewhere."""
    name = world.prometheus["metadata"]["name"]
    operator_labels = {
        "prometheus": f"{world.namespace}/{name}",
        "prometheus_replica": f"prometheus-{name}-0",
    }
    return operator_labels | (world.spec.get("externalLabels") or {})


def _selected(world: MonitoringObjects, kind: str) -> Iterator[Json]:
    """The monitors or rules that the Prometheus selects; no namespace selector means its own namespace."""
    spec = world.spec
    selector, namespace_selector = spec.get(f"{kind}Selector"), spec.get(f"{kind}NamespaceSelector")
    kinds = {"serviceMonitor": world.monitors, "podMonitor": world.pod_monitors, "rule": world.rules}
    for manifest in kinds[kind]:
        meta = manifest["metadata"]
        namespace_labels = (world.namespaces or {}).get(meta["namespace"], {})
        in_namespace = (
            meta["namespace"] == world.namespace
            if namespace_selector is None
            else matches(namespace_selector, namespace_labels)
        )
        if in_namespace and matches(selector, meta.get("labels") or {}):
            yield manifest


def _additional_jobs(world: MonitoringObjects, notes: list[str]) -> list[Json]:
    try:
        jobs = yaml.safe_load(world.by_hand) or []
    except yaml.YAMLError:
        jobs = None
    if isinstance(jobs, list):
        return jobs
    notes.append("additionalScrapeConfigs: is not a YAML list, and is ignored")
    return []


def _file_name(rule: Mapping[str, Any]) -> str:
    return f"{rule['metadata']['namespace']}_{rule['metadata']['name']}.yaml"


def _rule_file(rule: Mapping[str, Any]) -> str:
    groups = [*(rule["spec"].get("groups") or ())]
    return yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000)


def _flag_name(argument: str) -> str:
    return argument.lstrip("-").partition("=")[0]
