"""Reads the cluster's monitoring objects repeatedly; a list is fetched in full only after a change."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.sidecars.shared.server import METADATA, NotFound, Server

Json = dict[str, Any]
APP = "kube-state-metrics"
HEALTH = "gpuform-health"
"""Namespace and Deployment of the health loop; infra.model.platform.health has the same name for the plan."""
_KINDS = "/apis/monitoring.coreos.com/v1"
_OF_HEALTH = f"/apis/apps/v1/namespaces/{HEALTH}/deployments"


@dataclass(frozen=True)
class MonitoringObjects:
    """One ``Prometheus`` and the objects it may select; ``also`` names further ones, which are not run."""

    prometheus: Json
    monitors: tuple[Json, ...] = ()
    rules: tuple[Json, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    """Namespace name -> labels."""
    by_hand: str = ""
    """The text of ``additionalScrapeConfigs``."""
    state_metrics: Json | None = None
    """The Deployment of kube-state-metrics."""
    also: tuple[str, ...] = ()
    health: Json | None = None
    """The Deployment of the health loop."""
    pod_monitors: tuple[Json, ...] = ()

    @property
    def namespace(self) -> str:
        return str(self.prometheus["metadata"]["namespace"])

    @property
    def spec(self) -> Json:
        spec: Json = self.prometheus["spec"]
        return spec


class Cluster:
    """One API server, read as administrator; prometheus-operator may read the same objects."""

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        self._server = Server(kubeconfig, pki)
        self._seen: dict[str, tuple[object, tuple[Json, ...]]] = {}

    def read(self) -> MonitoringObjects | None:
        """The objects now, None if no ``Prometheus`` is declared. Raises ``server.SERVER_ERRORS``."""
        try:
            resources = self.items(f"{_KINDS}/prometheuses")
        except NotFound:  # not even the kind is defined
            return None
        active = [resource for resource in resources if resource["spec"].get("replicas", 1) != 0]
        if not active:
            return None
        first, *others = sorted(active, key=lambda item: (item["metadata"]["namespace"], _name(item)))
        namespace = first["metadata"]["namespace"]
        deployments = self.items(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        return MonitoringObjects(
            prometheus=first,
            monitors=self.items(f"{_KINDS}/servicemonitors"),
            rules=self.items(f"{_KINDS}/prometheusrules"),
            namespaces={
                _name(item): item["metadata"].get("labels") or {} for item in self.items("/api/v1/namespaces")
            },
            by_hand=self._secret(namespace, first["spec"].get("additionalScrapeConfigs")),
            state_metrics=next((item for item in deployments if _is_state_metrics(item)), None),
            health=next((item for item in self.items(_OF_HEALTH) if _name(item) == HEALTH), None),
            also=tuple(f"{resource['metadata']['namespace']}/{_name(resource)}" for resource in others),
            pod_monitors=self.items(f"{_KINDS}/podmonitors"),
        )

    def kubeconfig(self, namespace: str, account: str) -> str:
        """A kubeconfig of that account. Raises ``server.SERVER_ERRORS``."""
        return self._server.kubeconfig(namespace, account)

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """The ConfigMap's data. Raises ``server.SERVER_ERRORS``."""
        data: dict[str, str] = self._server.ask(f"/api/v1/namespaces/{namespace}/configmaps/{name}")["data"]
        return data

    def items(self, path: str) -> tuple[Json, ...]:
        """The objects of a list; fetched in full only if a uid or resourceVersion has changed."""
        versions = frozenset(
            (item["metadata"]["uid"], item["metadata"]["resourceVersion"])
            for item in self._server.items(path, METADATA)
        )
        if path not in self._seen or self._seen[path][0] != versions:
            # A change between the two requests is read again at the next call.
            self._seen[path] = versions, tuple(self._server.items(path))
        return self._seen[path][1]

    def _secret(self, namespace: str, selector: Mapping[str, Any] | None) -> str:
        """The value of a Secret key selector; empty if the Secret or the key does not exist yet."""
        if not selector:
            return ""
        try:
            secret = self._server.ask(f"/api/v1/namespaces/{namespace}/secrets/{selector['name']}")
        except NotFound:
            return ""
        return base64.b64decode((secret.get("data") or {}).get(selector["key"], "")).decode()


def _name(manifest: Json) -> str:
    return str(manifest["metadata"]["name"])


def _is_state_metrics(manifest: Json) -> bool:
    labels = manifest["metadata"].get("labels") or {}
    return bool(labels.get("app.kubernetes.io/name") == APP and manifest["spec"].get("replicas", 1) != 0)


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches, as prometheus-operator reads it; raises ValueError if it cannot.

    None matches nothing, an empty selector everything.
    """
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    return all(_matches(expression, labels) for expression in selector.get("matchExpressions") or ())


def _matches(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values") or ()
    match expression["operator"]:
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    raise ValueError(f"selector: unknown operator {expression['operator']!r}")
