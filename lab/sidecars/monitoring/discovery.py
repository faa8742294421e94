"""Targets for a Prometheus without Kubernetes service discovery, as Debian builds it.

The targets that discovery would find are written, with the same labels, to files that Prometheus watches.
Objects are read as administrator, where Prometheus would use its own account. Supported roles: endpoints,
endpointslice and pod.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from lab.sidecars.monitoring.cluster import chosen

Json = dict[str, Any]
META = "__meta_kubernetes_"
OFTEN_S = 30.0
"""Seconds until targets are recomputed without a change: a pod may change without its endpoints."""
LIST = {
    "endpoints": "/api/v1{0}/endpoints",
    "endpointslice": "/apis/discovery.k8s.io/v1{0}/endpointslices",
    "pod": "/api/v1{0}/pods",
}
"""Role -> path of its objects, with a place for a namespace."""
_SERVICE_NAME = "kubernetes.io/service-name"

Items = Callable[[str], tuple[Json, ...]]
"""The objects of a list: the same tuple as long as none of them changes."""
Read = Callable[[str], list[Json]]


@dataclass(frozen=True)
class Lookup:
    """A job's discovery: ``namespaces`` is empty for all; ``selector`` (JSON) selects services."""

    role: str
    namespaces: tuple[str, ...] = ()
    selector: str = "{}"

    @property
    def paths(self) -> list[str]:
        return [f"/namespaces/{name}" for name in self.namespaces] or [""]


@dataclass
class Found:
    """The targets of one lookup, recomputed after a change or after ``OFTEN_S``."""

    lookup: Lookup
    seen: tuple[object, ...] = ()
    at: float = 0.0
    text: str = field(default="[]")

    def look(self, items: Items, read: Read) -> str:
        """The targets now, as text for ``file_sd_configs``. Errors of ``items`` and ``read`` pass through."""
        role = self.lookup.role
        if role not in LIST:
            return self.text
        found = [items(LIST[role].format(one)) for one in self.lookup.paths]
        services = [items(f"/api/v1{one}/services") for one in self.lookup.paths] if role != "pod" else []
        seen = tuple(map(id, (*found, *services)))
        if seen != self.seen or time.monotonic() - self.at > OFTEN_S:
            objects = [one for some in found for one in some]
            if role == "pod":
                targets = [target for one in objects for target in of_pod(one)]
            else:
                known = self._services(one for some in services for one in some)
                pods = self._pods(known.values(), read)
                targets = list(of_endpoints(role, objects, known, pods))
            self.text = json.dumps(targets, indent=1)
            self.seen, self.at = seen, time.monotonic()
        return self.text

    def _services(self, services: Iterable[Json]) -> dict[tuple[str, str], Json]:
        selector = json.loads(self.lookup.selector)
        return {_key(one): one for one in services if chosen(selector, one["metadata"].get("labels") or {})}

    def _pods(self, services: Iterable[Json], read: Read) -> dict[tuple[str, str], Json]:
        """Pods of the services only: a namespace may have ten pods per node."""
        found: dict[tuple[str, str], Json] = {}
        for one in services:
            if selector := one["spec"].get("selector"):
                query = quote(",".join(f"{key}={value}" for key, value in selector.items()))
                path = f"/api/v1/namespaces/{one['metadata']['namespace']}/pods?labelSelector={query}"
                found |= {_key(pod): pod for pod in read(path)}
        return found


def of_endpoints(
    role: str,
    objects: Iterable[Json],
    services: Mapping[tuple[str, str], Json],
    pods: Mapping[tuple[str, str], Json],
) -> Iterator[Json]:
    """Targets of Endpoints or EndpointSlices that belong to one of the services."""
    for one in objects:
        meta = one["metadata"]
        name = meta["name"] if role == "endpoints" else (meta.get("labels") or {}).get(_SERVICE_NAME, "")
        service = services.get((meta["namespace"], name))
        if service is None:
            continue
        kind = "endpoint" if role == "endpoints" else "endpointslice"
        of_all = {
            f"{META}namespace": meta["namespace"],
            **marks(role, meta),
            f"{META}{role}_name": meta["name"],
            **marks("service", service["metadata"]),
            f"{META}service_name": name,
        }
        for address, port, ready in _addresses(one) if role == "endpoints" else _slice(one):
            yield _endpoint(kind, of_all, address, port, ready, pods)


def _addresses(one: Json) -> Iterator[tuple[Json, Json, bool]]:
    for subset in one.get("subsets") or ():
        for port in subset.get("ports") or ():
            for field_name, ready in (("addresses", True), ("notReadyAddresses", False)):
                for address in subset.get(field_name) or ():
                    yield address, port, ready


def _slice(one: Json) -> Iterator[tuple[Json, Json, bool]]:
    for port in one.get("ports") or ():
        for endpoint in one.get("endpoints") or ():
            ready = (endpoint.get("conditions") or {}).get("ready", True)
            for ip in endpoint["addresses"]:
                yield {**endpoint, "ip": ip}, port, bool(ready)


def _endpoint(
    kind: str,
    of_all: Mapping[str, str],
    address: Json,
    port: Json,
    ready: bool,
    pods: Mapping[tuple[str, str], Json],
) -> Json:
    labels = dict(of_all)
    ready_label = "ready" if kind == "endpoint" else "endpoint_conditions_ready"
    labels[f"{META}{kind}_{ready_label}"] = str(ready).lower()
    labels[f"{META}{kind}_port_name"] = str(port.get("name") or "")
    labels[f"{META}{kind}_port_protocol"] = str(port.get("protocol") or "TCP")
    if node := address.get("nodeName"):
        labels[
            f"{META}{'endpoint_node_name' if kind == 'endpoint' else 'endpointslice_endpoint_node_name'}"
        ] = node
    if target := address.get("targetRef"):
        labels[f"{META}{kind}_address_target_kind"] = target["kind"]
        labels[f"{META}{kind}_address_target_name"] = target["name"]
        pod = pods.get((target.get("namespace", ""), target["name"])) if target["kind"] == "Pod" else None
        if pod is not None:
            labels |= pod_labels(pod)
            for container, name, number, protocol in _ports(pod):
                if number == port.get("port"):
                    labels |= _container(container, name, number, protocol)
    return {"targets": [f"{_host(address['ip'])}:{port.get('port')}"], "labels": labels}


def of_pod(pod: Json) -> Iterator[Json]:
    """One target per container port; none before the pod has an IP address."""
    ip = (pod.get("status") or {}).get("podIP")
    if not ip:
        return
    labels = {f"{META}namespace": pod["metadata"]["namespace"], **pod_labels(pod)}
    for container, name, number, protocol in _ports(pod):
        yield {
            "targets": [f"{_host(ip)}:{number}"],
            "labels": labels | _container(container, name, number, protocol),
        }


def pod_labels(pod: Json) -> dict[str, str]:
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    ready = next(
        (one["status"] for one in status.get("conditions") or () if one["type"] == "Ready"), "unknown"
    )
    owners: list[Json] = [one for one in meta.get("ownerReferences") or () if one.get("controller")]
    owner = owners[0] if owners else {}
    found = {
        "name": meta["name"],
        "uid": meta["uid"],
        "ip": status.get("podIP", ""),
        "host_ip": status.get("hostIP", ""),
        "node_name": spec.get("nodeName", ""),
        "phase": status.get("phase", ""),
        "ready": ready.lower(),
        "controller_kind": owner.get("kind", ""),
        "controller_name": owner.get("name", ""),
    }
    return {f"{META}pod_{key}": value for key, value in found.items() if value} | marks("pod", meta)


def marks(kind: str, meta: Json) -> dict[str, str]:
    """Meta labels of labels and annotations, each with its ``present`` label."""
    found = {}
    for field_name, short in (("labels", "label"), ("annotations", "annotation")):
        for key, value in (meta.get(field_name) or {}).items():
            plain = re.sub(r"[^a-zA-Z0-9_]", "_", key)
            found[f"{META}{kind}_{short}_{plain}"] = value
            found[f"{META}{kind}_{short}present_{plain}"] = "true"
    return found


def _ports(pod: Json) -> Iterator[tuple[Json, str, int, str]]:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            yield container, port.get("name", ""), port["containerPort"], port.get("protocol", "TCP")


def _container(container: Json, name: str, number: int, protocol: str) -> dict[str, str]:
    return {
        f"{META}pod_container_name": container["name"],
        f"{META}pod_container_init": "false",
        f"{META}pod_container_image": container.get("image", ""),
        f"{META}pod_container_port_name": name,
        f"{META}pod_container_port_number": str(number),
        f"{META}pod_container_port_protocol": protocol,
    }


def _key(one: Json) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _host(ip: str) -> str:
    return f"[{ip}]" if ":" in ip else ip
