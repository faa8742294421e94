"""Selects the Python interpreter of a program from the ``runtime.options`` of its Pulumi.yaml."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
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

    def process_environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """``base`` as in an activated environment, without PYTHONHOME, which would redirect the interpreter.

        PYTHONPATH is this host's; GPUFORM_PYTHONPATH is the program's.
        """
        env = dict(base)
        if (path := env.pop("GPUFORM_PYTHONPATH", None)) is not None:
            env["PYTHONPATH"] = path  # empty is as good as unset
        if self.environment is not None:
            env.pop("PYTHONHOME", None)
            env["VIRTUAL_ENV"] = str(self.environment)
            env["PULUMI_RUNTIME_VIRTUALENV"] = str(self.environment)
            env["PATH"] = f"{self.executable.parent}{os.pathsep}{env.get('PATH', '')}"
        return env


def resolve(root: Path, options: Mapping[str, object]) -> Interpreter:
    """The interpreter of the project at ``root``: its ``virtualenv``, else the one that runs this host.

    Raises InterpreterError for a ``virtualenv`` that does not exist, and for a toolchain other than pip.
    """
    virtualenv, toolchain = options.get("virtualenv"), options.get("toolchain") or "pip"
    if isinstance(virtualenv, str) and virtualenv:
        return _environment(
            (root / virtualenv).absolute(), f"the 'virtualenv' option in Pulumi.yaml ({virtualenv})"
        )
    if toolchain != "pip":
        raise InterpreterError(
            f"toolchain {toolchain!r} in Pulumi.yaml needs Pulumi's own language host; install that, or name "
            "the project's environment by the option 'virtualenv'"
        )
    return Interpreter(Path(sys.executable), None)


def _environment(path: Path, option: str) -> Interpreter:
    executable = path / "bin" / "python"
    if not executable.exists():
        state = "is not a virtual environment" if path.is_dir() else "does not exist"
        raise InterpreterError(
            f"{path}, named by {option}, {state}; create it with 'python3 -m venv {path}' "
            "and install the project into it"
        )
    return Interpreter(executable, path)
