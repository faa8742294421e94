"""The controllers, one row each: how the chart's Deployment is recognised, and what differs outside a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Where the program runs: ``root`` is a folder instead of the container's root folder.

    ``port`` gives the loopback port for one of the container's, which another cluster may use here.
    """

    namespace: str
    root: str
    port: Callable[[int], int]

    def address(self, written: str) -> str:
        """``:8081`` as an address on loopback."""
        return f"127.0.0.1:{self.port(int(written.rpartition(':')[2]))}"


@dataclass(frozen=True)
class Controller:
    """``name`` is that of the tool, ``declared`` the key of the environment file that needs the controller.

    ``chart`` is a folder of the Go ``module``. ``labels`` are those of its Deployment and its pods;
    ``stages.yaml`` repeats them, so that the pods wait for their program. ``adapt`` changes its
    configuration, the file ``config``, in what a process outside a pod cannot have: fixed ports, paths, the
    namespace that is mounted into a pod.
    """

    name: str
    declared: str
    module: str
    chart: str
    labels: Mapping[str, str]
    config: str
    adapt: Callable[[Json, Place], None]

    @property
    def selector(self) -> str:
        return ",".join(f"{key}={value}" for key, value in self.labels.items())


_CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108 - where the chart mounts the Secret


def _kueue(config: Json, place: Place) -> None:
    """Kueue's ports and paths; defaults: apis/config/v1beta2/defaults.go."""
    config["namespace"] = place.namespace
    health, metrics = config.setdefault("health", {}), config.setdefault("metrics", {})
    health["healthProbeBindAddress"] = place.address(health.get("healthProbeBindAddress") or ":8081")
    metrics["bindAddress"] = place.address(metrics.get("bindAddress") or ":8443")
    webhook = config.setdefault("webhook", {})
    certificates = webhook.get("certDir") or _CERTIFICATES
    webhook.update(
        host="127.0.0.1", port=place.port(webhook.get("port") or 9443), certDir=place.root + certificates
    )
    visibility = config.setdefault("visibilityServer", {})
    visibility.update(bindAddress="127.0.0.1", bindPort=place.port(visibility.get("bindPort") or 8082))
    config.setdefault("leaderElection", {})["resourceNamespace"] = place.namespace


CONTROLLERS: Mapping[str, Controller] = MappingProxyType(
    {
        one.name: one
        for one in (
            Controller(
                name="kueue",
                declared="queues",
                module="sigs.k8s.io/kueue",
                chart="charts/kueue",
                labels={"app.kubernetes.io/name": "kueue", "control-plane": "controller-manager"},
                config="controller_manager_config.yaml",
                adapt=_kueue,
            ),
        )
    }
)
