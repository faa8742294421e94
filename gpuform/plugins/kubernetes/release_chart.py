"""Charts that lie in a folder or an archive here: found, and summed up so that a changed file is a change."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from gpuform.plugins.handler import PluginError
from gpuform.plugins.kubernetes.release_helm import Chart


def locate(inputs: Mapping[str, Any], folder: Path | None = None) -> tuple[Chart, Path | None]:
    """The chart that ``inputs`` (plain values) name, and its path where it is a local one.

    A relative path counts from ``folder``, by default the working directory, which is the program's. Without
    a repository a folder with a Chart.yaml or a file of that name is a local chart; raises `PluginError` for
    a name that reads as a path and is neither.
    """
    name = str(inputs.get("chart") or "").strip()
    repository = {key: str(value) for key, value in (inputs.get("repositoryOpts") or {}).items() if value}
    version = str(inputs.get("version") or "")
    path = (folder or Path.cwd()) / name
    if name and not repository.get("repo") and ((path / "Chart.yaml").is_file() or path.is_file()):
        return Chart(str(path.resolve()), version), path.resolve()
    if name.startswith((".", "/")):
        raise PluginError(
            f"chart {name}: no chart lies at {path}; name a folder with a Chart.yaml, or a .tgz"
        )
    return Chart(name, version, repository), None


def checksum(path: Path) -> str:
    """SHA-256 over names and contents of the chart's files, hex; the place of the chart is no part of it.

    Files that its ``.helmignore`` keeps out of the chart do not count; neither do file times and modes.
    """
    total = hashlib.sha256()
    if path.is_file():
        total.update(path.read_bytes())
        return total.hexdigest()
    ignored = _ignored(path / ".helmignore")
    for file in sorted(item for item in path.rglob("*") if item.is_file()):
        name = file.relative_to(path)
        if not _matches(PurePosixPath(name.as_posix()), ignored):
            total.update(f"{name.as_posix()}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _ignored(file: Path) -> list[str]:
    if not file.is_file():
        return []
    lines = (line.strip() for line in file.read_text().splitlines())
    return [line for line in lines if line and not line.startswith(("#", "!"))]


def _matches(name: PurePosixPath, patterns: list[str]) -> bool:
    """Whether a pattern matches the file or a folder above it; one without a slash matches at any depth."""
    folders = [parent for parent in name.parents if parent.name]
    for pattern in patterns:
        bare = pattern.rstrip("/").lstrip("/")
        for part in folders if pattern.endswith("/") else [name, *folders]:
            subject = part.as_posix() if "/" in bare or pattern.startswith("/") else part.name
            if fnmatch.fnmatchcase(subject, bare):
                return True
    return False
