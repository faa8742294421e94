"""What the cluster says of its monitoring, read again and again at little cost."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.kept.server import METADATA, Missing, Server

Json = dict[str, Any]
APP = "kube-state-metrics"
HEALTH = "gpuform-health"
"""The health loop's namespace and Deployment (infra.model.health says the same, for the plan)."""
_KINDS = "/apis/monitoring.coreos.com/v1"
_OF_HEALTH = f"/apis/apps/v1/namespaces/{HEALTH}/deployments"


@dataclass(frozen=True)
class World:
    """One ``Prometheus`` and all that it may be about; ``also`` are others, which nobody runs here."""

    prometheus: Json
    monitors: tuple[Json, ...] = ()
    rules: tuple[Json, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    """Labels by name."""
    by_hand: str = ""
    """The text of ``additionalScrapeConfigs``."""
    state_metrics: Json | None = None
    """The Deployment of kube-state-metrics."""
    also: tuple[str, ...] = ()
    health: Json | None = None
    """The Deployment of the health loop."""

    @property
    def namespace(self) -> str:
        """Where the ``Prometheus`` is."""
        return str(self.prometheus["metadata"]["namespace"])

    @property
    def spec(self) -> Json:
        """What the ``Prometheus`` says."""
        found: Json = self.prometheus["spec"]
        return found


class Cluster:
    """One server, asked as administrator, as prometheus-operator may."""

    def __init__(self, kubeconfig: Path, pki: Path) -> None:
        """Reads the files now, connects later."""
        self._server = Server(kubeconfig, pki)
        self._seen: dict[str, tuple[object, tuple[Json, ...]]] = {}

    def look(self) -> World | None:
        """What there is now, None where nobody has declared a Prometheus; ``kept.server.TROUBLE``."""
        try:
            found = self.items(f"{_KINDS}/prometheuses")
        except Missing:  # nor is the kind known
            return None
        wanted = [one for one in found if one["spec"].get("replicas", 1) != 0]
        if not wanted:
            return None
        first, *others = sorted(wanted, key=lambda one: (one["metadata"]["namespace"], _name(one)))
        namespace = first["metadata"]["namespace"]
        deployments = self.items(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        return World(
            prometheus=first,
            monitors=self.items(f"{_KINDS}/servicemonitors"),
            rules=self.items(f"{_KINDS}/prometheusrules"),
            namespaces={
                _name(one): one["metadata"].get("labels") or {} for one in self.items("/api/v1/namespaces")
            },
            by_hand=self._secret(namespace, first["spec"].get("additionalScrapeConfigs")),
            state_metrics=next((one for one in deployments if _is_state_metrics(one)), None),
            health=next((one for one in self.items(_OF_HEALTH) if _name(one) == HEALTH), None),
            also=tuple(f"{one['metadata']['namespace']}/{_name(one)}" for one in others),
        )

    def kubeconfig(self, namespace: str, account: str) -> str:
        """A kubeconfig of that account; ``kept.server.TROUBLE``."""
        return self._server.kubeconfig(namespace, account)

    def config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Its content; ``kept.server.TROUBLE``."""
        found: dict[str, str] = self._server.ask(f"/api/v1/namespaces/{namespace}/configmaps/{name}")["data"]
        return found

    def read(self, path: str) -> list[Json]:
        """The objects of a list now; ``kept.server.TROUBLE``."""
        return self._server.items(path)

    def items(self, path: str) -> tuple[Json, ...]:
        """The objects of a list; read in full only when one of them is new or another one."""
        versions = frozenset(
            (one["metadata"]["uid"], one["metadata"]["resourceVersion"])
            for one in self._server.items(path, METADATA)
        )
        if path not in self._seen or self._seen[path][0] != versions:
            # What changes between the two questions is read once more at the next look.
            self._seen[path] = versions, tuple(self._server.items(path))
        return self._seen[path][1]

    def _secret(self, namespace: str, chosen: Mapping[str, Any] | None) -> str:
        """The text behind a reference to a Secret's key; empty where it is not there yet."""
        if not chosen:
            return ""
        try:
            secret = self._server.ask(f"/api/v1/namespaces/{namespace}/secrets/{chosen['name']}")
        except Missing:
            return ""
        return base64.b64decode((secret.get("data") or {}).get(chosen["key"], "")).decode()


def _name(one: Json) -> str:
    return str(one["metadata"]["name"])


def _is_state_metrics(one: Json) -> bool:
    labels = one["metadata"].get("labels") or {}
    return bool(labels.get("app.kubernetes.io/name") == APP and one["spec"].get("replicas", 1) != 0)
