"""What the cluster says of one controller: its Deployment, what the pods mount, their state, its Services."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lab.sidecars.controllers.rows import Controller
from lab.sidecars.shared.server import STRATEGIC, NotFound, Server

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
        container: Json = self.template["spec"]["containers"][0]
        return container

    @property
    def account(self) -> str:
        return str(self.template["spec"].get("serviceAccountName", "default"))

    def variables(self, node: str) -> dict[str, str]:
        """The container's environment in a pod on this node, without what comes from other objects."""
        fields = {"metadata.namespace": self.namespace, "spec.nodeName": node}
        found: dict[str, str] = {}
        for item in self.container.get("env", []):
            field = ((item.get("valueFrom") or {}).get("fieldRef") or {}).get("fieldPath")
            if field in fields:
                found[item["name"]] = fields[field]
            elif "valueFrom" not in item:
                found[item["name"]] = str(item.get("value", ""))
        return found

    @property
    def node(self) -> str:
        """Node of its first pod that has one; empty without one."""
        return next((str(pod["spec"]["nodeName"]) for pod in self.pods if pod["spec"].get("nodeName")), "")

    @property
    def version_text(self) -> str:
        """Text that differs if the program must be started anew; a changed Secret is only mounted anew."""
        return json.dumps([self.namespace, self.template, dict(self.mounted)], sort_keys=True)

    @property
    def ready(self) -> bool:
        return any(is_ready(pod) for pod in self.pods)

    def port(self, port: int | str) -> int:
        """The container's port, given by number or by name; 0 for the name of another container's."""
        if isinstance(port, int):
            return port
        ports = self.container.get("ports", [])
        return next((int(item["containerPort"]) for item in ports if item.get("name") == port), 0)

    def served(self) -> Iterator[tuple[str, int]]:
        """Cluster address and port of its Services, with the container's port."""
        labels = self.template["metadata"].get("labels") or {}
        for service in self.services:
            spec = service["spec"]
            address = spec.get("clusterIP") or "None"
            if address == "None" or not (spec.get("selector") or {}).items() <= labels.items():
                continue
            for port in spec["ports"]:
                host = f"[{address}]" if ":" in address else address
                yield f"{host}:{port['port']}", self.port(port.get("targetPort", port["port"]))


class Cluster:
    """One API server, read and written as administrator."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def release(self, controller: Controller) -> Release | None:
        """What is installed now, None if nothing or no replica is. Raises ``server.SERVER_ERRORS``."""
        path = f"/apis/apps/v1/deployments?labelSelector={quote(controller.selector)}"
        deployments = self.server.items(path)
        active = [item for item in deployments if item["spec"].get("replicas", 1) and not _is_deleted(item)]
        if not active:
            return None
        first = min(active, key=lambda deployment: str(deployment["metadata"]["creationTimestamp"]))
        namespace = str(first["metadata"]["namespace"])
        core, template = f"/api/v1/namespaces/{namespace}", first["spec"]["template"]
        selector = ",".join(f"{key}={text}" for key, text in first["spec"]["selector"]["matchLabels"].items())
        mounted, secret = self._read_volumes(core, template["spec"])
        pods = tuple(self.server.items(f"{core}/pods?labelSelector={quote(selector)}"))
        services = tuple(self.server.items(f"{core}/services"))
        return Release(namespace, template, mounted, secret, pods, services)

    def has_ca_bundle(self, controller: Controller) -> bool:
        kind = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
        configurations = self.server.items(f"{kind}?labelSelector={quote(controller.selector)}")
        return all("caBundle" in hook["clientConfig"] for item in configurations for hook in item["webhooks"])

    def set_ready(self, pod: Json, ready: bool, metrics: int = 0) -> None:
        """Let kwok start the pod, or make it ready or not ready; nothing if it is so already.

        ``metrics`` is the loopback port that Prometheus reads instead of the pod's.
        """
        meta, status = pod["metadata"], pod.get("status") or {}
        annotations = meta.get("annotations") or {}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if _is_deleted(pod) or not pod["spec"].get("nodeName"):
            return
        metrics_note = {METRICS: str(metrics)} if metrics else {}
        if annotations.get(START) != GRANTED or not metrics_note.items() <= annotations.items():
            if ready:
                annotations = {START: GRANTED, **metrics_note}
                self.server.patch(path, {"metadata": {"uid": meta["uid"], "annotations": annotations}})
        elif status.get("phase") == "Running" and is_ready(pod) != ready:
            kinds, value = ("Ready", "ContainersReady"), str(ready)
            conditions = [{"type": kind, "status": value} for kind in kinds]
            containers = [{**container, "ready": ready} for container in status.get("containerStatuses", [])]
            new_status = {"conditions": conditions, "containerStatuses": containers}
            body = {"metadata": {"uid": meta["uid"]}, "status": new_status}
            self.server.patch(f"{path}/status", body, STRATEGIC)

    def _read_volumes(self, core: str, spec: Json) -> tuple[dict[str, str], dict[str, bytes]]:
        """Files of the first container's volumes. Raises Missing without one, for which a kubelet waits."""
        files: dict[str, str] = {}
        secret_files: dict[str, bytes] = {}
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        for mount in spec["containers"][0].get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if source := volume.get("configMap"):
                data = self.server.ask(f"{core}/configmaps/{source['name']}").get("data") or {}
                files |= dict(_files(mount, data))
            elif source := volume.get("secret"):
                try:
                    data = self.server.ask(f"{core}/secrets/{source['secretName']}").get("data") or {}
                except NotFound:
                    if not source.get("optional"):
                        raise
                    data = {}
                secret_files |= {path: base64.b64decode(text) for path, text in _files(mount, data)}
        return files, secret_files


def is_ready(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
    return is_ready and not _is_deleted(pod)


def _is_deleted(manifest: Json) -> bool:
    return "deletionTimestamp" in manifest["metadata"]


def _files(mount: Json, data: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    path, sub_path = str(mount["mountPath"]), mount.get("subPath")
    for name, text in data.items():
        if not sub_path:
            yield f"{path}/{name}", text
        elif name == sub_path:
            yield path, text
