"""A new project: Pulumi.yaml, the program that calls ours, and one stack file."""

from __future__ import annotations

import re
from pathlib import Path

_PROJECT = """\
name: "{name}"
description: GPU Kubernetes clusters
runtime: python
"""
_PROGRAM = '''\
"""Creates what Pulumi.STACK.yaml declares."""

from gpuform.program import run

run()
'''


def write_project(folder: Path, stack: str, declared: str) -> list[str]:
    """Write and name the files; the project has the folder's name, ``declared`` is the stack file's text."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", folder.name)[:100] or "gpuform"
    files = {
        f"Pulumi.{stack}.yaml": declared,
        "__main__.py": _PROGRAM,
        "Pulumi.yaml": _PROJECT.format(name=name),
    }
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    return list(files)
