"""A made-up cloud: keystone, Magnum and their neighbours over HTTP, in one process, on loopback.

It has everything that CERN's stack needs; a test removes one thing. Responses have the format of the
services' API references; requests are recorded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

from gpuform.clients.openstack.cloud import Cloud, connect
from tests.fakes.http_server import serving

PROJECT, USER = "p" * 32, "u" * 32
REGION = "cern"
TYPES = {
    "keystone": "identity", "magnum": "container-infra", "nova": "compute", "glance": "image",
    "neutron": "network", "cinder": "volumev3", "octavia": "load-balancer", "heat": "orchestration",
}  # fmt: skip
_ROOTS = {"keystone": "/v3", "magnum": "/v1", "nova": "/v2.1", "glance": "", "neutron": "", "octavia": ""}
_VERSIONED = {"glance": "v2", "neutron": "v2.0", "octavia": "v2.0"}


def flavor(name: str, vcpus: int, gib: float, disk: int = 80) -> dict[str, Any]:
    return {"id": f"id-{name}", "name": name, "vcpus": vcpus, "ram": int(gib * 1024), "disk": disk}


FLAVORS = (("m2.medium", 2, 3.7), ("g2.5xlarge", 28, 168), ("g2.xlarge", 4, 16), ("g3.xlarge", 4, 16),
           ("g4.p1.40g", 16, 120))  # fmt: skip


def template(**more: Any) -> dict[str, Any]:
    return {
        "uuid": "t-1", "name": "kubernetes-1.30.2-2", "coe": "kubernetes", "image_id": "fedora-coreos-40",
        "labels": {"kube_tag": "v1.30.2"}, "flavor_id": "m2.medium", "master_flavor_id": "m2.medium",
        "master_lb_enabled": False, "floating_ip_enabled": False, **more,
    }  # fmt: skip


def quotas() -> dict[str, dict[str, int]]:
    port, floating = {"limit": 200, "used": 5, "reserved": 0}, {"limit": 10, "used": 1, "reserved": 0}
    return {"port": port, "floatingip": floating}


def limits(**more: int) -> dict[str, int]:
    return {
        "maxTotalInstances": 100, "totalInstancesUsed": 3, "maxTotalCores": 1000, "totalCoresUsed": 12,
        "maxTotalRAMSize": -1, "totalRAMUsed": 4096, "maxTotalVolumes": 50, "totalVolumesUsed": 1,
        "maxTotalVolumeGigabytes": 5000, "totalGigabytesUsed": 10, **more,
    }  # fmt: skip


@dataclass
class FakeCloud:
    """The cloud's contents. ``refused`` maps a service to the HTTP status of all its responses.

    ``hidden`` are images that only a query for hidden ones lists, and ``community`` those that are only
    returned by id.
    """

    flavors: list[dict[str, Any]] = field(default_factory=lambda: [flavor(*one) for one in FLAVORS])
    templates: list[dict[str, Any]] = field(default_factory=lambda: [template()])
    clusters: list[dict[str, Any]] = field(default_factory=list)
    node_groups: list[dict[str, Any]] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    hidden: list[dict[str, Any]] = field(default_factory=list)
    community: list[dict[str, Any]] = field(default_factory=list)
    keypairs: tuple[str, ...] = ("gpu-admins",)
    networks: list[dict[str, Any]] = field(default_factory=list)
    subnets: list[dict[str, Any]] = field(default_factory=list)
    balancers: list[dict[str, Any]] = field(default_factory=list)
    ports: list[dict[str, Any]] = field(default_factory=list)
    stack: list[dict[str, Any]] = field(default_factory=list)
    limits: dict[str, int] = field(default_factory=limits)
    quotas: dict[str, dict[str, int]] = field(default_factory=quotas)
    hard_limit: int = 20
    newest: str = "1.11"
    password: str = "right"
    services: tuple[str, ...] = tuple(TYPES)
    refused: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def connect(self, **more: Any) -> Cloud:
        who = {"username": "someone", "password": "right", "project_name": "gpus"}
        domains = {"user_domain_name": "Default", "project_domain_name": "Default"}
        auth = {"auth_url": f"{self.url}/keystone/v3", **who, **domains, **more.pop("auth", {})}
        return connect(auth={key: value for key, value in auth.items() if value}, **more)

    def answer(self, service: str, path: str, method: str, query: str = "") -> tuple[int, Any]:
        assert method != "DELETE" or query.lower() == "cascade=true", "the parts go, too"
        if service == "glance" and "os_hidden=true" in query:
            return 200, {"images": self.hidden}
        if service in self.refused:
            return self.refused[service], {"error": {"message": "not you"}}
        if service in _VERSIONED and path in ("", "/"):
            version = {"id": _VERSIONED[service], "status": "CURRENT"}
            link = {"rel": "self", "href": f"{self.url}/{service}/{_VERSIONED[service]}"}
            return 200, {"versions": [{**version, "links": [link]}]}
        version = _VERSIONED.get(service)
        content = getattr(self, f"_{service}")(path.removeprefix(f"/{version}") if version else path, method)
        return (404, {"message": "none"}) if content is None else (200, content)

    def catalogue(self) -> list[dict[str, Any]]:
        services = []
        for name in self.services:
            tail = f"/v3/{PROJECT}" if name == "cinder" else f"/v1/{PROJECT}" if name == "heat" else ""
            url = f"{self.url}/{name}{_ROOTS.get(name, '')}{tail}"
            endpoint = {"interface": "public", "region": REGION, "region_id": REGION, "url": url, "id": name}
            services.append({"type": TYPES[name], "name": name, "id": name, "endpoints": [endpoint]})
        return services

    def _magnum(self, path: str, method: str) -> Any:
        parts = path.removeprefix("/v1").strip("/").split("/")
        if parts[:1] == ["clustertemplates"]:
            return _find(self.templates, parts[1:]) if parts[1:] else {"clustertemplates": self.templates}
        if parts[:1] == ["quotas"]:
            return {"hard_limit": self.hard_limit, "resource": "Cluster"}
        if parts == ["clusters"]:
            return {"clusters": self.clusters}
        if parts[:1] == ["clusters"]:
            cluster = _find(self.clusters, parts[1:])
            if cluster and parts[2:]:
                return _find(self.node_groups, parts[3:]) if parts[3:] else {"nodegroups": self.node_groups}
            return cluster
        return {"id": "v1"}

    def _nova(self, path: str, method: str) -> Any:
        path = path.removeprefix("/v2.1")
        if path == "/flavors/detail":
            return {"flavors": self.flavors}
        if path == "/limits":
            return {"limits": {"absolute": self.limits}}
        name = path.removeprefix("/os-keypairs/")
        return {"keypair": {"name": name}} if name in self.keypairs else None

    def _cinder(self, path: str, method: str) -> Any:
        return {"limits": {"absolute": self.limits}}

    def _glance(self, path: str, method: str) -> Any:
        if path != "/images":
            images = (*self.images, *self.hidden, *self.community)
            return next((image for image in images if path == f"/images/{image['id']}"), None)
        return {"images": self.images}

    def _neutron(self, path: str, method: str) -> Any:
        if path.startswith("/quotas"):
            return {"quota": self.quotas}
        return {path.strip("/"): getattr(self, path.strip("/"))}

    def _octavia(self, path: str, method: str) -> Any:
        if path.startswith("/lbaas/quotas"):
            return {"quota": {"load_balancer": 2}}
        if method == "DELETE":
            self.balancers = [one for one in self.balancers if one["id"] != path.rpartition("/")[2]]
            return {}
        return {"loadbalancers": self.balancers}

    def _heat(self, path: str, method: str) -> Any:
        if path.endswith("/resources"):
            return {"resources": self.stack}
        return {"stack": {"stack_name": "research-abc", "id": "s-1"}} if self.stack else None


def _find(objects: list[dict[str, Any]], path: list[str]) -> dict[str, Any] | None:
    return next((item for item in objects if item.get("uuid") == path[0]), None)


@contextmanager
def serve(cloud: FakeCloud) -> Iterator[FakeCloud]:
    with serving(_handler(cloud)) as at:
        cloud.url = f"http://{at}"
        yield cloud


def _handler(cloud: FakeCloud) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 65536  # headers and body in one packet: two would wait for each other

        def log_message(self, *_: Any) -> None:
            """Silent."""

        def do_GET(self) -> None:
            self._other("GET")

        def do_DELETE(self) -> None:
            self._other("DELETE")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            cloud.requests.append("POST keystone/auth/tokens")
            identity = request["auth"]["identity"]["password"]["user"]
            if identity["password"] != cloud.password:
                self._say(401, {"error": {"code": 401, "message": "Wrong password, says keystone."}})
                return
            project = {"id": PROJECT, "name": "gpus", "domain": {"id": "default", "name": "Default"}}
            scoped = {"project": project, "catalog": cloud.catalogue()} if "scope" in request["auth"] else {}
            user = {"id": USER, "name": identity["name"], "domain": {"id": "default", "name": "Default"}}
            token = {"user": user, "expires_at": "2099-01-01T00:00:00.000000Z", "methods": ["password"]}
            self._say(201, {"token": {**token, "issued_at": "2026-01-01T00:00:00.000000Z", **scoped}})

        def _other(self, method: str) -> None:
            path, query = urlsplit(self.path).path, urlsplit(self.path).query
            service, _, rest = path.lstrip("/").partition("/")
            cloud.requests.append(f"{method} {service}/{rest}")
            if service == "keystone":
                link = {"rel": "self", "href": f"{cloud.url}/keystone/v3/"}
                self._say(200, {"version": {"id": "v3.14", "status": "stable", "links": [link]}})
                return
            self._say(*cloud.answer(service, f"/{rest}".rstrip("/"), method, query))

        def _say(self, status: int, content: Any) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("X-Subject-Token", "token")
            self.send_header("OpenStack-API-Maximum-Version", f"container-infra {cloud.newest}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
