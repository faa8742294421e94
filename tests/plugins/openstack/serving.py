"""The small cloud over HTTP on loopback: a keystone that knows one user, Magnum, lists of its neighbours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl

from tests.plugins.openstack.fake import PROJECT, USER, Answer, Fake, error

_SERVICES = {
    "container-infra": "/magnum/v1",
    "network": "/neutron",
    "load-balancer": "/octavia",
    "orchestration": f"/heat/v1/{PROJECT}",
}


def _catalogue(address: str) -> list[dict[str, Any]]:
    return [
        {
            "type": type,
            "name": type,
            "id": type,
            "endpoints": [
                {
                    "interface": "public",
                    "region_id": "cern",
                    "region": "cern",
                    "url": address + path,
                    "id": type,
                }
            ],
        }
        for type, path in _SERVICES.items()
    ]


def _login(fake: Fake, body: Any) -> Answer:
    fake.logins += 1
    if fake.password not in json.dumps(body):
        return 401, {"error": {"code": 401, "title": "Unauthorized", "message": "The request you have made"}}
    token = {
        "methods": ["password"],
        "user": {"id": USER, "name": "ana", "domain": {"id": "default", "name": "Default"}},
        "project": {"id": PROJECT, "name": "gpu", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "m", "name": "member"}],
        "issued_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": "2099-01-01T00:00:00.000000Z",
        "catalog": _catalogue(fake.address),
    }
    return 201, {"token": token}


def _page(fake: Fake, path: str, key: str, all: list[Any], query: str) -> dict[str, Any]:
    """A page of a list, with the link to the next one as octavia and neutron have it."""
    marker = dict(parse_qsl(query)).get("marker")
    first = [one["id"] for one in all].index(marker) + 1 if marker else 0
    page = all[first : first + fake.page]
    if first + fake.page >= len(all):
        return {key: page}
    link = {"rel": "next", "href": f"http://inside.example{path}?marker={page[-1]['id']}"}
    return {key: page, f"{key}_links": [link]}


def _serve(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Serving(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: a second one waits 40 ms for the first's acknowledgement

        def do(self) -> None:
            path, _, query = self.path.partition("?")
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fake.requests.append((self.command, path, body))
            status, answer = self._answer(path, body, query)
            if fake.drops_answer and self.command == "POST" and path.startswith("/magnum"):
                fake.drops_answer = False
                self.close_connection = True
                return
            data = json.dumps(answer).encode() if answer is not None else b""
            self.send_response(status)
            if path.startswith("/identity"):
                self.send_header("X-Subject-Token", "token")
            self.send_header("OpenStack-API-Maximum-Version", f"container-infra {fake.newest}")
            self.send_header("OpenStack-API-Minimum-Version", "container-infra 1.1")
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_DELETE = do  # noqa: N815 - the base class's names

        def _answer(self, path: str, body: Any, query: str) -> Answer:
            if path.startswith("/identity/v3/auth/tokens"):
                return _login(fake, body)
            if path.rstrip("/") == "/identity/v3":
                links = [{"rel": "self", "href": fake.address + "/identity/v3/"}]
                return 200, {"version": {"id": "v3.14", "status": "stable", "links": links}}
            if path.startswith("/magnum/v1"):
                asked = (self.headers.get("OpenStack-API-Version") or "x 1.1").split()[-1]
                if [int(part) for part in asked.split(".")] > [int(part) for part in fake.newest.split(".")]:
                    return error(406, f"Version {asked} was requested")
                return fake.answer(self.command, path.removeprefix("/magnum/v1") or "/", body, query)
            service = path.split("/")[1]
            if service in fake.blocking:
                key = {"neutron": "ports", "octavia": "loadbalancers", "heat": "resources"}[service]
                return 200, _page(fake, path, key, fake.blocking[service], query)
            return 404, {"error": {"code": 404, "title": "Not Found", "message": path}}

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    return Serving


@contextmanager
def serving() -> Iterator[Fake]:
    """A cloud that answers until the block ends."""
    fake = Fake()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _serve(fake))
    fake.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
