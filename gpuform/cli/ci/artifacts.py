"""Fetches the summaries of a preview workflow's run, which are untrusted.

Each is an artifact ``summary-offline-STACK`` or ``summary-live-STACK`` with the one file ``summary.md``. A
pull request controls all of it, so its name, its size packed and unpacked, its form and its first line are
checked, and nothing is unpacked to disk.
"""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from typing import Any

import httpx

from gpuform.checkout.errors import Failure
from gpuform.checkout.stack_names import NAME
from gpuform.cli.ci.github import GitHub
from gpuform.reports.pull_request import marker

MOST_CHARACTERS = 64_000  # GitHub's limit is 65,536; the rest is for what is added
MOST_BYTES = 4 * MOST_CHARACTERS
MOST_SUMMARIES = 40
FILE = "summary.md"
_NAME = re.compile(rf"summary-(?P<how>offline|live)-(?P<stack>{NAME.pattern})")


@dataclass(frozen=True)
class Summary:
    """One summary: valid, or refused with the reason."""

    stack: str
    text: str = ""
    refused: str = ""


def list_summaries(github: GitHub, run: int, live: bool) -> list[Summary]:
    """The summary of each stack; the live preview's, if ``live`` allows it and it exists."""
    chosen: dict[str, dict[str, Any]] = {}
    artifacts = _list_artifacts(github, run)
    for mode in ("offline", "live") if live else ("offline",):
        for artifact in artifacts:
            match = _NAME.fullmatch(str(artifact["name"]))
            if match is not None and match["how"] == mode:
                chosen[match["stack"]] = artifact
    if len(chosen) > MOST_SUMMARIES:
        raise Failure("artifacts", f"{len(chosen)} summaries", f"a run may have at most {MOST_SUMMARIES}")
    return [_fetch_summary(github, stack, artifact) for stack, artifact in sorted(chosen.items())]


def _list_artifacts(github: GitHub, run: int) -> list[dict[str, Any]]:
    answer = github.call("GET", f"actions/runs/{run}/artifacts?per_page=100")
    return sorted(answer["artifacts"], key=lambda item: int(item["id"]))  # of a repeated run, the last counts


def _fetch_summary(github: GitHub, stack: str, artifact: dict[str, Any]) -> Summary:
    if artifact.get("expired"):
        return Summary(stack, refused="has expired")
    if int(artifact["size_in_bytes"]) > MOST_BYTES:
        return Summary(stack, refused=f"has {artifact['size_in_bytes']} bytes; {MOST_BYTES} are allowed")
    packed = _download(github.download_url(f"actions/artifacts/{int(artifact['id'])}/zip"))
    if packed is None:
        return Summary(stack, refused=f"has more than {MOST_BYTES} bytes")
    return _unpack(stack, packed)


def _download(url: str) -> bytes | None:
    """Download without any token; None if it is too large."""
    content = b""
    try:
        with httpx.stream("GET", url, timeout=30) as response:
            response.raise_for_status()
            for part in response.iter_bytes():
                content += part
                if len(content) > MOST_BYTES:
                    return None
    except httpx.HTTPError as error:  # its text may contain the address, which is as good as a key
        raise Failure("artifact", f"download: {type(error).__name__}", "run the job again") from None
    return content


def _unpack(stack: str, packed: bytes) -> Summary:
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            if archive.namelist() != [FILE]:
                return Summary(stack, refused=f"does not contain {FILE} alone")
            with archive.open(FILE) as file:
                content = file.read(MOST_BYTES + 1)  # read to the limit: the archive may lie about its size
        text = content.decode("utf-8")
    except (zipfile.BadZipFile, UnicodeDecodeError, NotImplementedError, RuntimeError, EOFError, OSError):
        return Summary(stack, refused="cannot be read")
    if len(content) > MOST_BYTES or len(text) > MOST_CHARACTERS:
        return Summary(stack, refused=f"is longer than {MOST_CHARACTERS} characters")
    if text.split("\n", 1)[0] != marker(stack):
        return Summary(stack, refused="does not begin with its marker")
    return Summary(stack, text)
