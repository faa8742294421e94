"""What the cluster says of one controller: its Deployment, what the pods mount, their state, its Services."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lab.sidecars.controllers.rows import Controller
from lab.sidecars.shared.server import STRATEGIC, Missing, Server

Json = dict[str, Any]
START, GRANTED = "simulator.gpuform.io/start", "granted"
"""kwok's stage starts the pod once it has this annotation; lab.simulator.keys has the same key."""
METRICS = "simulator.gpuform.io/metrics"
"""Annotation of the pod: loopback port of its program's metrics; lab.sidecars.monitoring.targets reads it."""


@dataclass(frozen=True)
class Release:
    """One Deployment and what belongs to it; ``mounted`` is path in the container -> text of the file."""

    namespace: str
    template: Json
    mounted: Mapping[str, str]
    secret: Mapping[str, bytes]
    """The same of Secrets, which change while the program runs."""
    pods: tuple[Json, ...]
    services: tuple[Json, ...]

    @property
    def container(self) -> Json:
        found: Json = self.template["spec"]["containers"][0]
        return found

    @property
    def account(self) -> str:
        return str(self.template["spec"].get("serviceAccountName", "default"))

    @property
    def program(self) -> str:
        """Text that differs if the program must be started anew; a changed Secret is only mounted anew."""
        return json.dumps([self.namespace, self.template, dict(self.mounted)], sort_keys=True)

    @property
    def ready(self) -> bool:
        """Whether a Service sends to any of its pods."""
        return any(is_ready(pod) for pod in self.pods)

    def port(self, named: int | str) -> int:
        """The container's port, given by number or by name; 0 for the name of another container's."""
        if isinstance(named, int):
            return named
        ports = self.container.get("ports", [])
        return next((int(one["containerPort"]) for one in ports if one.get("name") == named), 0)

    def served(self) -> Iterator[tuple[str, int]]:
        """Cluster address and port of its Services, with the container's port."""
        labels = self.template["metadata"].get("labels") or {}
        for service in self.services:
            spec = service["spec"]
            address = spec.get("clusterIP") or "None"
            if address == "None" or not (spec.get("selector") or {}).items() <= labels.items():
                continue
            for one in spec["ports"]:
                host = f"[{address}]" if ":" in address else address
                yield f"{host}:{one['port']}", self.port(one.get("targetPort", one["port"]))


class Cluster:
    """One API server, read and written as administrator."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def release(self, controller: Controller) -> Release | None:
        """What is installed now, None if nothing or no replica is. Raises ``server.TROUBLE``."""
        found = self.server.items(f"/apis/apps/v1/deployments?labelSelector={quote(controller.selector)}")
        wanted = [one for one in found if one["spec"].get("replicas", 1) and not _leaving(one)]
        if not wanted:
            return None
        first = min(wanted, key=lambda one: str(one["metadata"]["creationTimestamp"]))
        namespace = str(first["metadata"]["namespace"])
        core, template = f"/api/v1/namespaces/{namespace}", first["spec"]["template"]
        selector = ",".join(
            f"{key}={value}" for key, value in first["spec"]["selector"]["matchLabels"].items()
        )
        mounted, secret = self._mounted(core, template["spec"])
        return Release(
            namespace,
            template,
            mounted,
            secret,
            tuple(self.server.items(f"{core}/pods?labelSelector={quote(selector)}")),
            tuple(self.server.items(f"{core}/services")),
        )

    def trusts(self, controller: Controller) -> bool:
        """Whether the controller's validating webhooks have a CA bundle."""
        kind = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        found = self.server.items(f"{kind}?labelSelector={quote(controller.selector)}")
        return all("caBundle" in hook["clientConfig"] for one in found for hook in one["webhooks"])

    def show(self, pod: Json, ready: bool, metrics: int = 0) -> None:
        """Let kwok start the pod, or make it ready or not ready; nothing if it is so already.

        ``metrics`` is the loopback port that Prometheus reads instead of the pod's.
        """
        meta, status = pod["metadata"], pod.get("status") or {}
        has = meta.get("annotations") or {}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if _leaving(pod) or not pod["spec"].get("nodeName"):
            return
        shown = {METRICS: str(metrics)} if metrics else {}
        if has.get(START) != GRANTED or not shown.items() <= has.items():
            if ready:
                annotations = {START: GRANTED, **shown}
                self.server.patch(path, {"metadata": {"uid": meta["uid"], "annotations": annotations}})
        elif status.get("phase") == "Running" and is_ready(pod) != ready:
            kinds, word = ("Ready", "ContainersReady"), str(ready)
            conditions = [{"type": kind, "status": word} for kind in kinds]
            containers = [{**one, "ready": ready} for one in status.get("containerStatuses", [])]
            changed = {"conditions": conditions, "containerStatuses": containers}
            body = {"metadata": {"uid": meta["uid"]}, "status": changed}
            self.server.patch(f"{path}/status", body, STRATEGIC)

    def _mounted(self, core: str, spec: Json) -> tuple[dict[str, str], dict[str, bytes]]:
        """Files of the first container's volumes. Raises Missing without one, for which a kubelet waits."""
        plain: dict[str, str] = {}
        secret: dict[str, bytes] = {}
        volumes = {one["name"]: one for one in spec.get("volumes", [])}
        for mount in spec["containers"][0].get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if chosen := volume.get("configMap"):
                data = self.server.ask(f"{core}/configmaps/{chosen['name']}").get("data") or {}
                plain |= dict(_files(mount, data))
            elif chosen := volume.get("secret"):
                try:
                    data = self.server.ask(f"{core}/secrets/{chosen['secretName']}").get("data") or {}
                except Missing:
                    if not chosen.get("optional"):
                        raise
                    data = {}
                secret |= {path: base64.b64decode(text) for path, text in _files(mount, data)}
        return plain, secret


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return not _leaving(pod) and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _leaving(one: Json) -> bool:
    return "deletionTimestamp" in one["metadata"]


def _files(mount: Json, data: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    path, only = str(mount["mountPath"]), mount.get("subPath")
    for name, text in data.items():
        if not only:
            yield f"{path}/{name}", text
        elif name == only:
            yield path, text
