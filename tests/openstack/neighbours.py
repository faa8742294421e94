"""An HTTP stand-in for Magnum's neighbours: glance, nova, neutron, cinder, heat, octavia in one server.

It answers the calls that Magnum makes to check a request (images, flavors, key pairs, networks, subnets)
and those that gpuform makes before and after (limits, quotas, what blocks a deletion), and 404 to
everything else, which it records in ``unknown``. Tests change its tables in place; the tables never change
otherwise. Response formats are from the services' API references (docs.openstack.org/api-ref).
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.http_server import serving
from tests.openstack import tables

Row = dict[str, Any]
Answer = tuple[int, Any]

# Path of a collection -> table name, key of a single object in a response, key of a list.
_COLLECTIONS: dict[str, tuple[str, str | None, str]] = {
    "/image/v2/images": ("images", None, "images"),
    "/compute/v2.1/flavors": ("flavors", "flavor", "flavors"),
    "/compute/v2.1/servers": ("servers", "server", "servers"),
    "/compute/v2.1/os-keypairs": ("keypairs", "keypair", "keypairs"),
    "/network/v2.0/networks": ("networks", "network", "networks"),
    "/network/v2.0/subnets": ("subnets", "subnet", "subnets"),
    "/network/v2.0/ports": ("ports", "port", "ports"),
    "/network/v2.0/routers": ("routers", "router", "routers"),
    "/network/v2.0/floatingips": ("floating_ips", "floatingip", "floatingips"),
    "/network/v2.0/security-groups": ("security_groups", "security_group", "security_groups"),
    "/network/v2.0/extensions": ("extensions", "extension", "extensions"),
    "/volume/v3/*/volumes": ("volumes", "volume", "volumes"),
    "/volume/v3/*/types": ("volume_types", "volume_type", "volume_types"),
    "/orchestration/v1/*/stacks": ("stacks", "stack", "stacks"),
    "/load-balancer/v2/lbaas/loadbalancers": ("load_balancers", "loadbalancer", "loadbalancers"),
}
_NOT_FILTERS = {
    *("limit", "marker", "sort_key", "sort_dir", "fields", "all_tenants", "is_public", "sort", "offset")
}


@dataclass
class Neighbours:
    """The tables, shared by all projects."""

    url: str = ""
    tables: dict[str, list[Row]] = field(default_factory=tables.initial_tables)
    unknown: list[str] = field(default_factory=list)

    def reset(self) -> None:
        self.tables = tables.initial_tables()
        self.unknown.clear()

    def add(self, table: str, name: str, **more: Any) -> Row:
        row = {"id": str(uuid.uuid4()), "name": name, **more}
        self.tables[table].append(row)
        return row

    def answer(self, method: str, target: str) -> Answer:
        parts = urlsplit(target)
        path = parts.path.rstrip("/").replace("/load-balancer/v2.0", "/load-balancer/v2")  # octavia has both
        query = dict(parse_qsl(parts.query))
        if path in tables.VERSIONS:
            return tables.version(path, self.url)
        for pattern, reply in _QUOTAS:
            if method == "GET" and re.fullmatch(pattern, path):
                return 200, reply
        for pattern, (table, item_key, list_key) in _COLLECTIONS.items():
            match = re.fullmatch(pattern.replace("*", "[^/]+") + "(?:/(.*))?", path)
            if match:
                return self._of_collection(method, table, (item_key, list_key), match[1] or "", query)
        self.unknown.append(f"{method} {target}")
        return 404, {"message": f"the stand-in answers no {method} {path}"}

    def _of_collection(
        self, method: str, table: str, keys: tuple[str | None, str], tail: str, query: dict[str, str]
    ) -> Answer:
        rows = self.tables[table]
        item_key, list_key = keys
        wrap = (lambda row: {item_key: row}) if item_key else (lambda row: row)
        if tail in ("", "detail"):
            filters = {k: v for k, v in query.items() if k not in _NOT_FILTERS}
            matches = [r for r in rows if all(_same(r.get(k), v) for k, v in filters.items() if k in r)]
            page = [] if "marker" in query else matches
            return 200, {list_key: [{item_key: r} for r in page] if table == "keypairs" else page}
        ident, _, sub_path = tail.partition("/")
        row = next((r for r in rows if ident in (r["id"], r["name"])), None)
        if row is None:
            return 404, {"itemNotFound": {"code": 404, "message": f"{table} has no {ident}"}}
        if sub_path in ("", row["id"]) and method == "DELETE":
            rows.remove(row)
            return 204, None
        if method != "GET":
            self.unknown.append(f"{method} {table}/{tail}")
            return 404, {"message": f"the stand-in answers no {method} of {table}"}
        if sub_path in ("", row["id"]):
            return 200, wrap(row)
        return 200, {
            sub_path.split("/")[-1].replace("os-", "").replace("-", "_"): row.get(sub_path.split("/")[-1], {})
        }


def _same(value: Any, wanted: str) -> bool:
    return str(value).lower() == wanted.lower()


def _limits(service: str, **names: str) -> Row:
    """Limits and usage of a service, by their names in its answer."""
    values = tables.QUOTAS[service]
    return {"limits": {"rate": [], "absolute": {name: values[key] for name, key in names.items()}}}


def _details() -> Row:
    """neutron's quota with details: limit and usage under each name."""
    values = tables.QUOTAS["network"]
    names = [name for name in values if not name.startswith("used_")]
    return {name: {"limit": values[name], "used": values[f"used_{name}"], "reserved": 0} for name in names}


_QUOTAS: tuple[tuple[str, Row], ...] = (
    (r"/load-balancer/v2/lbaas/quotas/[^/]+", {"quota": tables.QUOTAS["load-balancer"]}),
    (r"/compute/v2\.1/limits", _limits(
        "compute", maxTotalInstances="instances", maxTotalCores="cores", maxTotalRAMSize="ram",
        totalInstancesUsed="used_instances", totalCoresUsed="used_cores", totalRAMUsed="used_ram",
    )),
    (r"/volume/v3/[^/]+/limits", _limits(
        "volume", maxTotalVolumes="volumes", maxTotalVolumeGigabytes="gigabytes",
        totalVolumesUsed="used_volumes", totalGigabytesUsed="used_gigabytes",
    )),
    (r"/network/v2\.0/quotas/[^/]+/details\.json", {"quota": _details()}),
)  # fmt: skip


@contextmanager
def serve() -> Iterator[Neighbours]:
    """The server on its own loopback port, in a thread of this process."""
    neighbours = Neighbours()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet

        def _reply(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            token = self.headers.get("X-Auth-Token")
            status, body = neighbours.answer(self.command, self.path)
            if token is None and self.path.rstrip("/") not in tables.VERSIONS:
                status, body = 401, {"error": {"code": 401, "message": "no token"}}
            data = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = _reply  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with serving(Handler) as at:
        neighbours.url = f"http://{at}"
        yield neighbours
