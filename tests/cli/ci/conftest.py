"""A GitHub stand-in on loopback: pulls, comments, issues, artifacts; only the calls that the steps need."""

from __future__ import annotations

import io
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

BOT = "github-actions[bot]"
TOKEN = "ghs_CanaryThatIsNeverPrinted"
REPOSITORY = "acme/gpus"


def packed(content: bytes, name: str = "summary.md") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


@dataclass
class Fake:
    url: str = ""
    pulls: list[dict[str, Any]] = field(default_factory=list)
    comments: list[dict[str, Any]] = field(default_factory=list)
    issues: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    blobs: dict[int, bytes] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    leaked: bool = False
    forbidden: bool = False

    @property
    def writes(self) -> list[tuple[str, str]]:
        return [call for call in self.calls if call[0] != "GET"]

    @property
    def environ(self) -> dict[str, str]:
        return {
            "GITHUB_API_URL": self.url,
            "GITHUB_REPOSITORY": REPOSITORY,
            "GITHUB_TOKEN": TOKEN,
            "GITHUB_SERVER_URL": "https://github.test",
            "GITHUB_RUN_ID": "77",
        }

    def artifact(self, name: str, content: bytes, size: int | None = None) -> None:
        number = len(self.artifacts) + 1
        self.blobs[number] = content
        size = len(content) if size is None else size
        self.artifacts.append({"id": number, "name": name, "size_in_bytes": size, "expired": False})

    def comment(self, body: str, login: str = BOT) -> None:
        self.comments.append({"id": len(self.comments) + 1, "user": {"login": login}, "body": body})

    def issue(self, body: str, login: str = BOT, **more: Any) -> None:
        number = len(self.issues) + 1
        self.issues.append(
            {"number": number, "state": "open", "user": {"login": login}, "body": body, "notes": [], **more}
        )

    def answer(self, method: str, path: str, query: dict[str, str], content: dict[str, Any]) -> Any:
        """Response of the API; a string is a redirect, None is 404."""
        parts = path.removeprefix(f"/repos/{REPOSITORY}/").split("/")
        match (method, *parts):
            case ("GET", "pulls"):
                return _page([p for p in self.pulls if p["head"]["label"] == query["head"]], query)
            case ("GET", "issues", _, "comments"):
                return _page(self.comments, query)
            case ("POST", "issues", number, "comments"):
                if found := [one for one in self.issues if one["number"] == int(number)]:
                    found[0]["notes"].append(content["body"])
                else:
                    self.comment(content["body"])
                return {"id": len(self.comments)}
            case ("PATCH", "issues", "comments", number):
                self.comments[int(number) - 1].update(content)
                return {}
            case ("GET", "issues"):
                return _page([one for one in self.issues if one["state"] == query["state"]], query)
            case ("POST", "issues"):
                self.issue(content["body"], title=content["title"])
                return self.issues[-1]
            case ("PATCH", "issues", number):
                self.issues[int(number) - 1].update(content)
                return {}
            case ("GET", "actions", "runs", _, "artifacts"):
                return {"artifacts": self.artifacts}
            case ("GET", "actions", "artifacts", number, "zip"):
                return f"{self.url}/blob/{number}?key=secret"
        return None


def _page(found: list[dict[str, Any]], query: dict[str, str]) -> list[dict[str, Any]]:
    size, page = int(query["per_page"]), int(query["page"])
    return found[size * (page - 1) : size * page]


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def _any(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            content = json.loads(self.rfile.read(length) or b"{}")
            if url.path.startswith("/blob/"):
                fake.leaked |= "Authorization" in self.headers
                self._send(200, fake.blobs[int(url.path.removeprefix("/blob/"))])
                return
            fake.calls.append((self.command, url.path.removeprefix(f"/repos/{REPOSITORY}/")))
            if fake.forbidden or self.headers["Authorization"] != f"Bearer {TOKEN}":
                self._send(403, b'{"message": "Resource not accessible by integration"}')
                return
            query = {name: values[0] for name, values in parse_qs(url.query).items()}
            found = fake.answer(self.command, url.path, query, content)
            if isinstance(found, str):
                self._send(302, b"", found)
            elif found is None:
                self._send(404, b'{"message": "Not Found"}')
            else:
                self._send(200, json.dumps(found).encode())

        do_GET = do_POST = do_PATCH = _any  # noqa: N815

        def _send(self, code: int, body: bytes, location: str = "") -> None:
            self.send_response(code)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler


@pytest.fixture
def fake() -> Iterator[Fake]:
    state = Fake()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state))
    state.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
