from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpuform.checkout.paths import Paths

ROOT = Paths.here().root
FILES = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
ACTIONS = sorted((ROOT / ".github" / "actions").glob("*/action.yml"))
_COMMAND = re.compile(
    r"(?P<program>\.venv/bin/gpuform|(?:\.venv/bin/python|python3) -m gpuform\.[\w.]+|\bmake)"
    r"(?P<words>[^|>)\n]*)"
)


def load(file: Path) -> dict[str, Any]:
    """The workflow; YAML parses its key `on` as true."""
    content = yaml.safe_load(file.read_text())
    return {("on" if key is True else key): value for key, value in content.items()}


WORKFLOWS = {file.stem: load(file) for file in FILES}
JOBS = {(name, job): value for name, flow in WORKFLOWS.items() for job, value in flow["jobs"].items()}


def steps() -> Iterator[tuple[str, dict[str, Any]]]:
    for (name, job), value in JOBS.items():
        for step in value["steps"]:
            yield f"{name}/{job}", step
    for file in ACTIONS:
        for step in load(file)["runs"]["steps"]:
            yield f"action {file.parent.name}", step


def commands() -> list[tuple[str, tuple[str, ...]]]:
    """Every gpuform command in a step: the program, and its arguments as the shell splits them."""
    found = set()
    for _, step in steps():
        for match in _COMMAND.finditer(step.get("run", "")):
            words = shlex.split(match["words"])
            found.add((match["program"], tuple(word for word in words if word != "${acknowledged[@]}")))
    return sorted(found)
