"""Which Pulumi plugins the packages of an interpreter need, and which packages it has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from .interpreter import Interpreter


@dataclass(frozen=True)
class RequiredPlugin:
    """What an installed SDK says about its plugin in ``pulumi-plugin.json``."""

    name: str
    version: str
    server: str


def required_plugins(interpreter: Interpreter) -> list[RequiredPlugin]:
    """Resource plugins of every SDK that the interpreter has, sorted by name.

    Like the official host this goes by what is installed, not by what a program imports. A file that is no
    JSON object or that declares no resource plugin is passed over.
    """
    found = {plugin.name: plugin for plugin in _declared(interpreter)}
    return [found[name] for name in sorted(found)]


def installed(interpreter: Interpreter) -> list[tuple[str, str]]:
    """Name and version of every distribution, sorted; nothing is imported."""
    folders = [str(folder) for folder in interpreter.package_folders()]
    return sorted({(dist.metadata["Name"], dist.version) for dist in distributions(path=folders)})


def pip_arguments(project: Path, interpreter: Interpreter) -> list[str]:
    """What ``pip install`` gets for a project: its requirements.txt, else the project itself, else nothing.

    Also nothing when the project is installed from its folder already: its files are then in use as they are.
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


def _declared(interpreter: Interpreter) -> Iterator[RequiredPlugin]:
    for folder in interpreter.package_folders():
        for path in folder.glob("*/pulumi-plugin.json"):
            plugin = _read(path)
            if plugin is not None:
                yield plugin


def _read(path: Path) -> RequiredPlugin | None:
    try:
        declared = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(declared, dict) or declared.get("resource") is not True:
        return None
    name = declared.get("name") or path.parent.name.removeprefix("pulumi_").replace("_", "-")
    return RequiredPlugin(str(name), str(declared.get("version") or ""), str(declared.get("server") or ""))
