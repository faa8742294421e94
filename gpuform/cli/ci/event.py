"""The event that triggered a workflow run: the variables and the file that GitHub gives to every step.

Scripts read names and texts here, not from ``${{ }}`` in a command: the author of a pull request chooses
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.checkout.errors import InputError

_LABEL = "acknowledge:"


def require(environ: Mapping[str, str], name: str) -> str:
    """A variable that GitHub sets; InputError if it is missing or empty."""
    value = environ.get(name, "").strip()
    if not value:
        raise InputError(name, "is not set", "run this in a workflow, or set it as docs/howto/ci.md says")
    return value


def read(environ: Mapping[str, str]) -> dict[str, Any]:
    file = Path(require(environ, "GITHUB_EVENT_PATH"))
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise InputError("GITHUB_EVENT_PATH", f"{file} contains no event", "run this in a workflow")
    return content


def acknowledged(event: Mapping[str, Any]) -> list[str]:
    """Names of acknowledged losses, set by people with write access.

    From a label ``acknowledge: NAME`` of the pull request, or from the input ``acknowledge`` (names,
    separated by spaces) of a run that was started by hand.
    """
    labels = [str(one.get("name", "")) for one in (event.get("pull_request") or {}).get("labels", [])]
    names = [text.removeprefix(_LABEL).strip() for text in labels if text.startswith(_LABEL)]
    names += str((event.get("inputs") or {}).get("acknowledge") or "").split()
    return [name for name in dict.fromkeys(names) if name]


def run_url(environ: Mapping[str, str]) -> str:
    server, repository, run = (
        require(environ, name) for name in ("GITHUB_SERVER_URL", "GITHUB_REPOSITORY", "GITHUB_RUN_ID")
    )
    return f"{server}/{repository}/actions/runs/{run}"
