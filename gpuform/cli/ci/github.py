"""What GitHub gives to every step of a workflow, the part of its REST API that comments and issues need, and
how untrusted text becomes safe to publish under the repository's own name.

Scripts read names and texts of the event here, not from ``${{ }}`` in a command: the author of a pull request
chooses them. The token is sent only to the API, and no message of ours contains it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpuform.checkout.errors import Failure, InputError

BOT = "github-actions[bot]"
"""Author of what a workflow run's token writes. Comments and issues of any other author are left alone."""

_PAGE = 100  # the most that a page may hold
_PAGES = 100
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
_LABEL = "acknowledge:"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class GitHub:
    """One repository. Errors are Failures with the call and GitHub's answer."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Reads GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_TOKEN."""
        token = require(environ, "GITHUB_TOKEN")
        if not _TOKEN.fullmatch(token):
            # Checked here, since a library that refuses the header would print it.
            raise InputError(
                "GITHUB_TOKEN", "is not a token", "pass the run's own token unchanged: github.token"
            )
        base = safe_url("GITHUB_API_URL", require(environ, "GITHUB_API_URL"))
        self._repository = require(environ, "GITHUB_REPOSITORY")
        self._client = httpx.Client(
            base_url=base,
            headers={
                "Authorization": f"Bearer {token}",
                "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28",
                "User-Agent": "gpuform",
            },
            timeout=30,
            follow_redirects=False,
        )

    def call(self, method: str, path: str, **content: Any) -> Any:
        """The parsed answer to one call; ``path`` is below the repository, ``content`` becomes JSON."""
        return self._request(method, path, json=content or None).json()

    def list_all(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        for page in range(1, _PAGES + 1):
            items = self._request("GET", path, params={**query, "per_page": _PAGE, "page": page}).json()
            yield from items
            if len(items) < _PAGE:
                return

    def download_url(self, path: str) -> str:
        """The real address of a download; fetch it without the token."""
        response = self._request("GET", path, redirect=True)
        return safe_url("GitHub", response.headers.get("location", ""))

    def _request(self, method: str, path: str, redirect: bool = False, **kwargs: Any) -> httpx.Response:
        url_path = f"/repos/{self._repository}/{path}"
        try:
            response = self._client.request(method, url_path, **kwargs)
        except httpx.HTTPError as error:
            raise Failure(
                "GitHub", f"{method} {url_path}: {type(error).__name__}", "run the job again"
            ) from None
        if response.is_redirect == redirect and response.status_code < 400:
            return response
        raise Failure(
            "GitHub",
            f"{method} {url_path}: {response.status_code} {_message(response)}".rstrip(),
            "check the permissions of the job, and run it again",
        )


def safe_url(subject: str, url: str) -> str:
    """The URL if its traffic is encrypted or local; InputError otherwise."""
    parts = urlsplit(url)
    if parts.hostname and (parts.scheme == "https" or parts.hostname in _LOOPBACK):
        return url.rstrip("/")
    fact = f"{parts.scheme or 'no scheme'}: is not an https address"
    raise InputError(subject, fact, "see docs/howto/ci.md")


def _message(response: httpx.Response) -> str:
    try:
        content = response.json()
    except ValueError:
        return ""
    return str(content.get("message", ""))[:200] if isinstance(content, dict) else ""


def begins_with(body: object, first_line: str) -> bool:
    """Whether a text of GitHub, which may have CRLF, has this first line."""
    return str(body or "").replace("\r\n", "\n").split("\n", 1)[0] == first_line


def require(environ: Mapping[str, str], name: str) -> str:
    """A variable that GitHub sets; InputError if it is missing or empty."""
    value = environ.get(name, "").strip()
    if not value:
        raise InputError(name, "is not set", "run this in a workflow, or set it as docs/howto/ci.md says")
    return value


def read_event(environ: Mapping[str, str]) -> dict[str, Any]:
    file = Path(require(environ, "GITHUB_EVENT_PATH"))
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise InputError("GITHUB_EVENT_PATH", f"{file} contains no event", "run this in a workflow")
    return content


def acknowledged_losses(event: Mapping[str, Any]) -> list[str]:
    """Names of acknowledged losses, set by people with write access.

    From a label ``acknowledge: NAME`` of the pull request, or from the input ``acknowledge`` (names,
    separated by spaces) of a run that was started by hand.
    """
    labels = [str(label.get("name", "")) for label in (event.get("pull_request") or {}).get("labels", [])]
    names = [text.removeprefix(_LABEL).strip() for text in labels if text.startswith(_LABEL)]
    names += str((event.get("inputs") or {}).get("acknowledge") or "").split()
    return [name for name in dict.fromkeys(names) if name]


def run_url(environ: Mapping[str, str]) -> str:
    server, repository, run = (
        require(environ, name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    )
    return f"{server}/{repository}/actions/runs/{run}"


_ZERO = "\u200b"
_ALLOWED = ("details>", "/details>", "summary>", "/summary>", "sub>", "/sub>")
_HTML = re.compile(rf"<(?!{'|'.join(map(re.escape, _ALLOWED))})(?=[A-Za-z/!?])")
_MENTION = re.compile(r"@(?=[A-Za-z0-9])")
_REFERENCE = re.compile(r"#(?=\d)")  # it would create a reference in that issue, of any repository
_ISSUE = re.compile(r"(?i)(?<![0-9a-z])gh(?=\\?-\d)")
_COMMIT = re.compile(r"(?i)(?<![0-9a-z])[0-9a-f]{7,40}(?![0-9a-z])")
"""Both become links (docs.github.com, Autolinked references and URLs); a part of six digits is no commit."""
_PART = re.compile(r"[0-9A-Fa-f]{6}(?=[0-9A-Fa-f])")
_ENTITY = re.compile(r"&(?!lt;|amp;)(?=[#A-Za-z])")  # it may encode a character that is searched here
_LINK = re.compile(r"\](?=[(:])")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto)(?=:)|\b(www)(?=\.)")


def sanitize(text: str) -> str:
    """The same text without mentions, links, references to issues and commits, images and foreign HTML."""
    text = _ENTITY.sub("&amp;", text.replace("\r", ""))
    text = _HTML.sub("&lt;", text)
    text = _MENTION.sub(f"@{_ZERO}", text)
    text = _REFERENCE.sub(f"#{_ZERO}", text)
    text = _ISSUE.sub(lambda match: f"{match[0]}{_ZERO}", text)
    text = _COMMIT.sub(lambda match: _PART.sub(lambda part: f"{part[0]}{_ZERO}", match[0]), text)
    text = _LINK.sub(f"]{_ZERO}", text)
    return _ADDRESS.sub(lambda match: f"{match[0]}{_ZERO}", text)


def code_block(text: str, limit: int) -> str:
    """Plain text as a code block that it cannot close; cut to ``limit`` characters, with a note."""
    shown = text if len(text) <= limit else text[:limit] + "\n... truncated: the run has the full output"
    shown = shown.replace("```", "'''").strip("\n")
    return f"```text\n{shown}\n```"
