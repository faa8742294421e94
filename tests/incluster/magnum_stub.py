"""Keystone and Magnum over HTTP, as far as the health loop asks them: tokens, one cluster's groups, resizes.

A stand-in: what the API itself says to the same calls is seen in tests/openstack.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CREDENTIAL = {
    "application_credential_id": "id-1",
    "application_credential_secret": "very-secret",
    "region_name": "cern",
}
Json = dict[str, Any]


class MagnumStub:
    """One cluster ``research``; a resize is under way for as many looks as ``slow`` says."""

    def __init__(self, **counts: int) -> None:
        self.groups: dict[str, Json] = {
            name: {
                "node_count": count,
                "min_node_count": 0,
                "status": "CREATE_COMPLETE",
                "status_reason": None,
            }
            for name, count in counts.items()
        }
        self.resizes: list[tuple[str, int, list[str]]] = []
        self.tokens = 0
        self.slow, self.fails = 1, 0
        self.refuses: list[tuple[int, str]] = []
        self.valid: set[str] = set()
        self.removed: Callable[[str], None] = lambda server: None
        self.added: Callable[[str], None] = lambda group: None
        self._under_way: dict[str, int] = {}
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                stub._answer(self, {})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                stub._answer(self, json.loads(body))

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def secret(self, folder: Path, **more: str) -> Path:
        """The credential as a mounted Secret is."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in {**CREDENTIAL, "auth_url": self.url, **more}.items():
            (folder / name).write_text(f"{text}\n")
        return folder

    def _answer(self, handler: BaseHTTPRequestHandler, body: Json) -> None:
        code, answer, headers = self._respond(handler, body)
        text = json.dumps(answer).encode()
        handler.send_response(code)
        for key, value in {**headers, "Content-Length": str(len(text))}.items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(text)

    def _respond(self, handler: BaseHTTPRequestHandler, body: Json) -> tuple[int, Json, dict[str, str]]:
        if handler.path == "/v3/auth/tokens":
            return self._token(body)
        if handler.headers["X-Auth-Token"] not in self.valid:
            return 401, {"error": {"message": "The request you have made requires authentication."}}, {}
        assert handler.headers["OpenStack-API-Version"] == "container-infra 1.10"
        _, _, v1, clusters, name, *rest = f"/{handler.path}".split("/")
        assert (v1, clusters) == ("v1", "clusters")
        if name != "research":
            return 404, {"errors": [{"detail": f"Cluster {name} could not be found."}]}, {}
        if rest == ["actions", "resize"]:
            return self._resize(body)
        return self._group(rest[1])

    def _token(self, body: Json) -> tuple[int, Json, dict[str, str]]:
        asked = body["auth"]["identity"]
        own = asked["application_credential"]
        good = (own["id"], own["secret"]) == (CREDENTIAL["application_credential_id"], "very-secret")
        if asked["methods"] != ["application_credential"] or not good:
            return 401, {"error": {"message": "Could not find Application Credential"}}, {}
        self.tokens += 1
        token = f"token-{self.tokens}"
        self.valid = {token}
        urls = {"internal": "http://127.0.0.1:1", "public": f"{self.url}/v1"}
        endpoints = [
            {"interface": kind, "region_id": region, "region": region, "url": url}
            for region, kind, url in [
                ("elsewhere", "public", "http://127.0.0.1:1"),
                *(("cern", kind, url) for kind, url in urls.items()),
            ]
        ]
        catalog = [{"type": "identity", "endpoints": []}, {"type": "container-infra", "endpoints": endpoints}]
        answer = {"token": {"catalog": catalog, "expires_at": "2199-01-01T00:00:00.000000Z"}}
        return 201, answer, {"X-Subject-Token": token}

    def _group(self, name: str) -> tuple[int, Json, dict[str, str]]:
        if name not in self.groups:
            return 404, {"errors": [{"detail": f"Nodegroup {name} could not be found."}]}, {}
        group = self.groups[name]
        if name in self._under_way:
            self._under_way[name] -= 1
            if self._under_way[name] < 0:
                self._end(name)
        return 200, dict(group), {}

    def _end(self, name: str) -> None:
        """The last resize of a group has come to its end."""
        del self._under_way[name]
        group = self.groups[name]
        if self.fails:
            self.fails -= 1
            group |= {"status": "UPDATE_FAILED", "status_reason": "No valid host was found."}
            return
        group |= {"status": "UPDATE_COMPLETE", "status_reason": None}
        _, count, servers = [one for one in self.resizes if one[0] == name][-1]
        for server in servers:
            self.removed(server)
        if count > self._before or (servers and count == self._before):
            self.added(name)

    def _resize(self, body: Json) -> tuple[int, Json, dict[str, str]]:
        if self.refuses:
            code, why = self.refuses.pop(0)
            return code, {"errors": [{"detail": why, "title": "no"}]}, {}
        name, count = body["nodegroup"], body["node_count"]
        group = self.groups[name]
        if count < group["min_node_count"]:
            return 400, {"errors": [{"detail": f"Resizing {name} outside the allowed range"}]}, {}
        self._before = group["node_count"]
        self.resizes.append((name, count, body["nodes_to_remove"]))
        group |= {"node_count": count, "status": "UPDATE_IN_PROGRESS"}
        self._under_way[name] = self.slow
        return 202, {"uuid": "c"}, {}
