"""Client for the part of GitHub's REST API that comments and issues need.

The token is sent only to the API, and no message of ours contains it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from gpuform.checkout.errors import Failure, InputError
from gpuform.cli.ci.event import require

OURS = "github-actions[bot]"
"""Author of what a workflow run's token writes. Comments and issues of any other author are left alone."""

_PAGE = 100  # the most that a page may hold
_PAGES = 100
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
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
        return self._answer(method, path, json=content or None).json()

    def each(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        for page in range(1, _PAGES + 1):
            found = self._answer("GET", path, params={**query, "per_page": _PAGE, "page": page}).json()
            yield from found
            if len(found) < _PAGE:
                return

    def location(self, path: str) -> str:
        """The real address of a download; fetch it without the token."""
        answer = self._answer("GET", path, redirect=True)
        return safe_url("GitHub", answer.headers.get("location", ""))

    def _answer(self, method: str, path: str, redirect: bool = False, **kwargs: Any) -> httpx.Response:
        where = f"/repos/{self._repository}/{path}"
        try:
            answer = self._client.request(method, where, **kwargs)
        except httpx.HTTPError as error:
            raise Failure(
                "GitHub", f"{method} {where}: {type(error).__name__}", "run the job again"
            ) from None
        if answer.is_redirect == redirect and answer.status_code < 400:
            return answer
        raise Failure(
            "GitHub",
            f"{method} {where}: {answer.status_code} {_message(answer)}".rstrip(),
            "check the permissions of the job, and run it again",
        )


def safe_url(subject: str, url: str) -> str:
    """The URL if its traffic is encrypted or local; InputError otherwise."""
    parts = urlsplit(url)
    if parts.hostname and (parts.scheme == "https" or parts.hostname in _LOOPBACK):
        return url.rstrip("/")
    fact = f"{parts.scheme or 'no scheme'}: is not an https address"
    raise InputError(subject, fact, "see docs/howto/ci.md")


def _message(answer: httpx.Response) -> str:
    try:
        content = answer.json()
    except ValueError:
        return ""
    return str(content.get("message", ""))[:200] if isinstance(content, dict) else ""
