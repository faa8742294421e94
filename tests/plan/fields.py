"""``fields.yaml``: environments, and for each field of the environment another value of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

Row = tuple[dict[str, Any], str, Any]
"""An environment, the path of the field, and another value."""
_FILE: dict[str, Any] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
ENVIRONMENTS: dict[str, dict[str, Any]] = _FILE["environments"]
HOSTS = ENVIRONMENTS["hosts"]
MIRROR: dict[str, Any] = HOSTS["cluster"]["driver"]["repository"]


def rows(part: str) -> dict[tuple[str, str], Row]:
    """By type and field; part is rows or refused."""
    found: dict[tuple[str, str], Row] = {}
    for name, types in _FILE[part].items():
        for kind, field, path, value in types.pop("others", ()):
            found[kind, field] = (ENVIRONMENTS[name], path, value)
        for key, values in types.items():
            kind, _, path = key.partition(" ")
            for field, value in values.items():
                found[kind, field] = (ENVIRONMENTS[name], f"{path}/{field}".lstrip("/"), value)
    return found


def put(environment: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at the path; blocks on the way that are missing are made."""
    found = copy.deepcopy(environment)
    here: Any = found
    *parents, last = path.split("/")
    for part in parents:
        here = here[int(part)] if isinstance(here, list) else here.setdefault(part, {})
    here[int(last) if isinstance(here, list) else last] = value
    return found
