"""Scrape configurations as prometheus-operator writes them: of its monitors, and those added by hand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lab.sidecars.monitoring.targets import Ports, redirections

Json = dict[str, Any]
SERVICE, POD = "__meta_kubernetes_service_", "__meta_kubernetes_pod_"
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MILLISECONDS |= {"w": 604_800_000, "y": 31_536_000_000}
_PART = re.compile(r"(\d+)(ms|[smhdwy])")
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+")


def _prometheus_names(*fields: str) -> dict[str, str]:
    """Prometheus's names of the operator's fields, by these."""
    return {field: re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", field) for field in fields}


_LABEL_LIMITS = ("labelLimit", "labelNameLengthLimit", "labelValueLengthLimit")
_NUMBERS = _prometheus_names("sampleLimit", "targetLimit", *_LABEL_LIMITS)
_SWITCHES = ("honorLabels", "honorTimestamps", "followRedirects", "enableHttp2")
_ENDPOINT = {"path": "metrics_path", **_prometheus_names("scheme", "params", *_SWITCHES)}
_SUPPORTED = {*_ENDPOINT, "port", "targetPort", "interval", "scrapeTimeout", "relabelings"}
_SUPPORTED |= {"metricRelabelings", "bearerTokenFile", "tlsConfig"}
TOKEN = "prometheus.token"  # noqa: S105 - the file with the token of Prometheus' account
_CREDENTIALS = ("basic_auth", "authorization", "oauth2", "bearer_token", "bearer_token_file", "tls_config")
"""Left out: they are for the target's own address, which is not contacted; their files are in a pod."""


def seconds(text: str) -> float:
    """Seconds of a Prometheus duration (``1h30m``). Raises ValueError for any other text."""
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration")
    return sum(int(count) * _MILLISECONDS[unit] for count, unit in _PART.findall(text)) / 1000


@dataclass(frozen=True)
class ScrapeJobs:
    """Settings that all jobs share; ``interval`` and ``timeout`` are the Prometheus's defaults.

    ``role`` is ``pod`` for PodMonitors, see prometheus-operator, generatePodMonitorConfig.
    """

    kubeconfig: str
    ports: Ports
    interval: str
    timeout: str
    role: str = "endpoints"
    say: Callable[[str], None] = lambda text: None

    @property
    def of_pods(self) -> ScrapeJobs:
        """The same for PodMonitors."""
        return replace(self, role="pod")

    def monitor(self, monitor: Mapping[str, Any]) -> Iterator[Json]:
        """One job for each endpoint of a ServiceMonitor, or of a PodMonitor."""
        meta, spec = monitor["metadata"], monitor["spec"]
        pods, monitor_name = self.role == "pod", f"{meta['namespace']}/{meta['name']}"
        name = f"{'podMonitor' if pods else 'serviceMonitor'}/{monitor_name}"
        endpoints = "podMetricsEndpoints" if pods else "endpoints"
        for index, endpoint in enumerate(spec.get(endpoints) or ()):
            for unread in sorted(set(endpoint) - _SUPPORTED):
                self.say(f"{name}: {endpoints}[{index}].{unread} is not supported here")
            yield {
                "job_name": f"{name}/{index}",
                "kubernetes_sd_configs": [self._discovery(meta["namespace"], spec)],
                **self._times(endpoint.get("interval"), endpoint.get("scrapeTimeout")),
                **{key: endpoint[field] for field, key in _ENDPOINT.items() if field in endpoint},
                **_authorization(endpoint),
                **{key: spec[field] for field, key in _NUMBERS.items() if field in spec},
                "relabel_configs": [
                    *_selected(spec.get("selector") or {}, POD if pods else SERVICE),
                    *self._port(endpoint),
                    *self._labels(spec, endpoint, monitor_name),
                    *map(relabeling_config, endpoint.get("relabelings") or ()),
                    *redirections(self.ports),
                ],
                "metric_relabel_configs": [*map(relabeling_config, endpoint.get("metricRelabelings") or ())],
            }

    def by_hand(self, configs: Iterable[Mapping[str, Any]]) -> Iterator[Json]:
        """Jobs of ``additionalScrapeConfigs``, which are in Prometheus's own format."""
        for config in configs:
            job = {key: value for key, value in config.items() if key not in _CREDENTIALS}
            discoveries = [
                {
                    **{key: value for key, value in item.items() if key not in _CREDENTIALS},
                    "kubeconfig_file": self.kubeconfig,
                }
                for item in config.get("kubernetes_sd_configs") or ()
            ]
            if discoveries:
                job["kubernetes_sd_configs"] = discoveries
            job |= self._times(config.get("scrape_interval"), config.get("scrape_timeout"))
            job["relabel_configs"] = [*(config.get("relabel_configs") or ()), *redirections(self.ports)]
            yield job

    def _times(self, interval: str | None, timeout: str | None) -> Json:
        """Prometheus refuses a timeout longer than the interval, so it is capped."""
        scrape_interval = str(interval or self.interval)
        scrape_timeout = min(str(timeout or self.timeout), scrape_interval, key=seconds)
        return {"scrape_interval": scrape_interval, "scrape_timeout": scrape_timeout}

    def _discovery(self, namespace: str, spec: Mapping[str, Any]) -> Json:
        selector = spec.get("namespaceSelector") or {}
        discovery: Json = {"role": self.role, "kubeconfig_file": self.kubeconfig}
        if not selector.get("any"):
            discovery["namespaces"] = {"names": list(selector.get("matchNames") or [namespace])}
        if (spec.get("attachMetadata") or {}).get("node"):
            discovery["attach_metadata"] = {"node": True}
        return discovery

    def _port(self, endpoint: Mapping[str, Any]) -> list[Json]:
        if name := endpoint.get("port"):
            return [_keep(f"__meta_kubernetes_{self._kind}_port_name", str(name))]
        if (target := endpoint.get("targetPort")) is not None:
            label = "number" if str(target).isdigit() else "name"
            return [_keep(f"__meta_kubernetes_pod_container_port_{label}", str(target))]
        return []

    def _labels(self, spec: Mapping[str, Any], endpoint: Mapping[str, Any], monitor: str) -> Iterator[Json]:
        target_label = f"__meta_kubernetes_{self._kind}_address_target_"
        for kind, label in (("Node", "node"), ("Pod", "pod")):
            yield _copy((f"{target_label}kind", f"{target_label}name"), label, f"{kind};(.*)")
        yield _copy(("__meta_kubernetes_namespace",), "namespace")
        yield _copy((f"{SERVICE}name",), "service")
        yield _copy(("__meta_kubernetes_pod_name",), "pod")
        yield _copy(("__meta_kubernetes_pod_container_name",), "container")
        ended = {"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"}
        yield {**ended, "action": "drop"}
        for key, prefix in (("targetLabels", SERVICE), ("podTargetLabels", POD)):
            for name in spec.get(key) or ():
                yield _copy((f"{prefix}label_{_label_name(name)}",), _label_name(name), "(.+)")
        pods = self.role == "pod"
        yield {"target_label": "job", "replacement": monitor} if pods else _copy((f"{SERVICE}name",), "job")
        if name := spec.get("jobLabel"):
            yield _copy((f"{POD if pods else SERVICE}label_{_label_name(name)}",), "job", "(.+)")
        if port := endpoint.get("port") or endpoint.get("targetPort"):
            yield {"target_label": "endpoint", "replacement": str(port)}

    @property
    def _kind(self) -> str:
        return {"endpointslice": "endpointslice", "pod": "pod_container"}.get(self.role, "endpoint")


def _authorization(endpoint: Mapping[str, Any]) -> Json:
    """The account's token for a target that asks for one. No certificate is checked: none is for loopback."""
    settings: Json = {"tls_config": {"insecure_skip_verify": True}} if "tlsConfig" in endpoint else {}
    if endpoint.get("bearerTokenFile"):
        settings["authorization"] = {"credentials_file": TOKEN}
    return settings


def relabeling_config(relabeling: Mapping[str, Any]) -> Json:
    names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    config = {names.get(key, key): value for key, value in relabeling.items()}
    return config | ({"action": str(config["action"]).lower()} if "action" in config else {})


def _selected(selector: Mapping[str, Any], prefix: str) -> Iterator[Json]:
    for key, value in sorted((selector.get("matchLabels") or {}).items()):
        yield _keep_labelled(key, [value], prefix)
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or []
        match expression["operator"]:
            case "In":
                yield _keep_labelled(key, values, prefix)
            case "NotIn":
                yield _keep_labelled(key, values, prefix) | {"action": "drop"}
            case "Exists":
                yield _keep(f"{prefix}labelpresent_{_label_name(key)}", "true")
            case "DoesNotExist":
                yield _keep(f"{prefix}labelpresent_{_label_name(key)}", "true") | {"action": "drop"}


def _keep_labelled(key: str, values: Iterable[str], prefix: str) -> Json:
    """An absent label is not an empty one, hence the second source."""
    name = _label_name(key)
    alternatives = "|".join(re.escape(str(value)) for value in values)
    return {
        "source_labels": [f"{prefix}label_{name}", f"{prefix}labelpresent_{name}"],
        "regex": f"({alternatives});true",
        "action": "keep",
    }


def _keep(label: str, value: str) -> Json:
    return {"source_labels": [label], "regex": re.escape(value), "action": "keep"}


def _copy(labels: tuple[str, ...], target: str, regex: str = "") -> Json:
    return {"source_labels": list(labels), "target_label": target} | ({"regex": regex} if regex else {})


def _label_name(label: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", label)
