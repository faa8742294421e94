"""Selects the Python interpreter of a program from the ``runtime.options`` of its Pulumi.yaml."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path


class InterpreterError(Exception):
    """The options name an interpreter that does not exist; ``str()`` says which and how to create it."""


@dataclass(frozen=True)
class Interpreter:
    """A Python executable and its package folders.

    ``environment`` is the virtual environment's root, or ``None`` if the host's own interpreter is used.
    """

    executable: Path
    environment: Path | None

    def package_folders(self) -> list[Path]:
        """Folders of installed packages; the executable is not started to find them."""
        if self.environment is None:
            return [Path(entry) for entry in sys.path if entry.endswith("-packages")]
        return sorted(self.environment.glob("lib/python3*/site-packages"))

    def process_environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` as in an activated environment, without PYTHONHOME, which would redirect the interpreter.

        This host was started without PYTHONPATH; GPUFORM_PYTHONPATH is the program's.
        """
        env = dict(base)
        if path := env.pop("GPUFORM_PYTHONPATH", ""):
            env["PYTHONPATH"] = path
        if self.environment is not None:
            env.pop("PYTHONHOME", None)
            env["VIRTUAL_ENV"] = str(self.environment)
            env["PULUMI_RUNTIME_VIRTUALENV"] = str(self.environment)
            env["PATH"] = f"{self.executable.parent}{os.pathsep}{env.get('PATH', '')}"
        return env


def resolve(root: Path, options: Mapping[str, object]) -> Interpreter:
    """The interpreter of the project at ``root``.

    ``virtualenv`` wins; then the toolchain's environment (``uv``: UV_PROJECT_ENVIRONMENT or ``.venv`` in the
    project or a folder above it; ``poetry``: what ``poetry env info --path`` prints); with neither, the
    interpreter that runs this host. Raises InterpreterError if the requested environment does not exist.
    """
    named = options.get("virtualenv")
    toolchain = str(options.get("toolchain") or "pip")
    if isinstance(named, str) and named:
        return _environment((root / named).absolute(), f"the 'virtualenv' option in Pulumi.yaml ({named})")
    if toolchain == "uv":
        return _environment(_uv_environment(root), "the environment of toolchain uv")
    if toolchain == "poetry":
        return _environment(_poetry_environment(root), "the environment of toolchain poetry")
    if toolchain != "pip":
        raise InterpreterError(f"unknown toolchain {toolchain!r} in Pulumi.yaml; use pip, uv or poetry")
    return Interpreter(Path(sys.executable), None)


def _environment(path: Path, asked_by: str) -> Interpreter:
    executable = path / "bin" / "python"
    if not executable.exists():
        state = "is not a virtual environment" if path.is_dir() else "does not exist"
        raise InterpreterError(
            f"{path}, named by {asked_by}, {state}; create it with 'python3 -m venv {path}' "
            "and install the project into it"
        )
    return Interpreter(executable, path)


def _uv_environment(root: Path) -> Path:
    chosen = os.environ.get("UV_PROJECT_ENVIRONMENT")
    if chosen:
        return (root / chosen).absolute()
    folders = [root, *root.parents]
    return next((folder / ".venv" for folder in folders if (folder / ".venv").is_dir()), root / ".venv")


def _poetry_environment(root: Path) -> Path:
    poetry = shutil.which("poetry")
    if poetry is None:
        raise InterpreterError("Pulumi.yaml requests toolchain poetry, but poetry is not on PATH; install it")
    answer = subprocess.run(
        [poetry, "env", "info", "--path"], cwd=root, capture_output=True, text=True, check=False, timeout=60
    )
    if answer.returncode != 0:
        raise InterpreterError(f"poetry has no environment for {root}; run 'poetry install' there")
    return Path(answer.stdout.strip())


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
