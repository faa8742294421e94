"""helm as offline runs have it: a chart in a repository or registry is a stand-in, all else is helm itself.

``python -m gpuform.offline.helm HELM ROOT CACHE MADE ARGUMENTS...``, see `gpuform.offline.charts.Charts`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuform.errors import Failure, InputError
from gpuform.offline.charts import Charts

_REPO, _VERSION = "--repo", "--version"
_WITH_CHART = ("install", "upgrade", "template", "pull", "show", "lint")


def replaced(words: Sequence[str], charts: Charts) -> list[str]:
    """helm's arguments with the chart that they name in a repository or registry as a folder here."""
    pairs = {flag: _value(words, flag) for flag in (_REPO, _VERSION)}
    version = pairs[_VERSION][1]
    at, repository = pairs[_REPO]
    found: list[str] = []
    skip = False
    for index, word in enumerate(words):
        if skip:
            skip = False
        elif word == _REPO:
            skip = True
        elif word.startswith(f"{_REPO}="):
            continue
        elif word.startswith("oci://"):
            found.append(str(charts.folder(word.rsplit("/", 1)[-1].split("@")[0].split(":")[0], version)))
        elif repository and index == at - 1:
            found.append(str(charts.folder(word, version)))
        else:
            found.append(word)
    return found


def _value(words: Sequence[str], flag: str) -> tuple[int, str]:
    """Where a flag stands, and its value; (0, "") where it is not there."""
    for index, word in enumerate(words):
        if word == flag and index + 1 < len(words):
            return index, words[index + 1]
        if word.startswith(f"{flag}="):
            return index, word.removeprefix(f"{flag}=")
    return 0, ""


def main(arguments: Sequence[str]) -> None:
    """Become helm; ends with helm's own form of an error where a stand-in cannot be made."""
    helm, root, cache, made, *words = arguments
    if words and words[0] in _WITH_CHART:
        try:
            words = replaced(words, Charts(Path(root), Path(cache), Path(made)))
        except (Failure, InputError, OSError) as error:
            sys.stderr.write(f"Error: offline: {error}\n")
            sys.exit(1)
    os.execv(helm, [helm, *words])  # noqa: S606 - the same process, so that signals reach helm


if __name__ == "__main__":
    main(sys.argv[1:])
