"""A GitHub stand-in: pulls, comments, issues, artifacts; only the calls that the steps need."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

BOT = "github-actions[bot]"
TOKEN = "ghs_CanaryThatIsNeverPrinted"
REPOSITORY = "acme/gpus"
URL = "https://api.github.test"


def packed(content: bytes, name: str = "summary.md") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return buffer.getvalue()


@dataclass
class Fake:
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
            "GITHUB_API_URL": URL,
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
                return f"{URL}/blob/{number}?key=secret"
        return None


def _page(found: list[dict[str, Any]], query: dict[str, str]) -> list[dict[str, Any]]:
    size, page = int(query["per_page"]), int(query["page"])
    return found[size * (page - 1) : size * page]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Answers every request of httpx."""
    state = Fake()

    def handle(transport: object, request: httpx.Request) -> httpx.Response:
        if request.url.host != urlsplit(URL).hostname:
            raise httpx.ConnectError("refused", request=request)
        path, sent = request.url.path, request.headers.get("Authorization")
        if path.startswith("/blob/"):
            state.leaked |= sent is not None
            return httpx.Response(200, content=state.blobs[int(path.removeprefix("/blob/"))])
        state.calls.append((request.method, path.removeprefix(f"/repos/{REPOSITORY}/")))
        if state.forbidden or sent != f"Bearer {TOKEN}":
            return httpx.Response(403, json={"message": "Resource not accessible by integration"})
        found = state.answer(
            request.method, path, dict(request.url.params), json.loads(request.content or "{}")
        )
        if isinstance(found, str):
            return httpx.Response(302, headers={"Location": found})
        return httpx.Response(
            404 if found is None else 200, json={"message": "Not Found"} if found is None else found
        )

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", handle)
    return state
