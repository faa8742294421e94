"""Runs one plugin written in Python; started as a file by the plugin's interpreter, not by ours.

``plugin.py KIND FOLDER ENGINE_ADDRESS...``: KIND ``analyzer`` is a policy pack, others are run as they are.
Exists so that a plugin ends with the host that started it, even after a kill -9 of that host.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import tomllib
from pathlib import Path


def main() -> None:
    del sys.path[0]  # the folder of this file: its modules must not shadow the plugin's
    kind, folder, *args = sys.argv[1:]
    die_with_parent()
    if kind == "analyzer":
        sys.argv = ["pulumi.policy", *args, folder]
        runpy.run_module("pulumi.policy", run_name="__main__", alter_sys=True)
    elif name := distribution(Path(folder)):
        sys.argv = ["pulumi.run.plugin", name, *args]
        runpy.run_module("pulumi.run.plugin", run_name="__main__", alter_sys=True)
    else:
        sys.argv = [folder, *args]
        runpy.run_path(folder, run_name="__main__")


def distribution(folder: Path) -> str | None:
    """Name of the package in the folder, if it has a build backend: such a plugin is run as a module."""
    try:
        declared = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    name = declared.get("project", {}).get("name")
    return str(name) if name and declared.get("build-system", {}).get("build-backend") else None


def die_with_parent() -> None:
    """On Linux, end this process with its parent; elsewhere the plugin notices its engine's end itself."""
    if sys.platform == "linux":
        import ctypes
        import signal

        with contextlib.suppress(OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1: PR_SET_PDEATHSIG


if __name__ == "__main__":
    main()
