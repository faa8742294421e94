"""Which packages an interpreter has, and which pip would add."""

from __future__ import annotations

import json
from importlib.metadata import distributions
from pathlib import Path

from .interpreter import Interpreter


def installed(interpreter: Interpreter) -> list[tuple[str, str]]:
    """Name and version of every distribution, sorted; nothing is imported."""
    folders = [str(folder) for folder in interpreter.package_folders()]
    return sorted({(dist.metadata["Name"], dist.version) for dist in distributions(path=folders)})


def pip_arguments(project: Path, interpreter: Interpreter) -> list[str]:
    """What ``pip install`` gets for a project: its requirements.txt, else the project itself, else nothing.

    Also nothing if the project is installed in editable mode from its folder.
    """
    if (project / "requirements.txt").is_file():
        return ["-r", "requirements.txt"]
    if not (project / "pyproject.toml").is_file() or _in_use(project, interpreter):
        return []
    return ["-e", "."]


def _in_use(project: Path, interpreter: Interpreter) -> bool:
    for folder in interpreter.package_folders():
        for record in folder.glob("*.dist-info/direct_url.json"):
            origin = json.loads(record.read_text(encoding="utf-8"))
            if origin.get("dir_info", {}).get("editable") and origin.get("url") == project.resolve().as_uri():
                return True
    return False
