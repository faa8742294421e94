"""``fields.yaml``: environments, and for each field of the environment another value of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel

from infra.model.environment import Environment
from tests.build.edits import changed

Json = dict[str, Any]
Row = tuple[str, str, Json, str, Any]
"""Type, field, an environment, the path of the field, and another value."""
_FILE: Json = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
ENVIRONMENTS: dict[str, Json] = _FILE["environments"]
for _name, (_of, _edits) in _FILE["variants"].items():
    ENVIRONMENTS[_name] = changed(ENVIRONMENTS[_of], *({"at": at, "put": put} for at, put in _edits.items()))
HOSTS = ENVIRONMENTS["hosts"]
MIRROR: Json = HOSTS["cluster"]["driver"]["repository"]


def rows(part: str) -> Iterator[Row]:
    for name, types in _FILE[part].items():
        for key, values in types.items():
            if key == "others":
                yield from ((kind, field, ENVIRONMENTS[name], *more) for kind, field, *more in values)
                continue
            kind, _, path = key.partition(" ")
            for field, value in values.items():
                yield kind, field, ENVIRONMENTS[name], f"{path}/{field}".lstrip("/"), value


def put(environment: Json, path: str, value: Any) -> Json:
    """A copy with the value at the path."""
    return changed(environment, {"at": path, "put": value})


def every_model(of: Any = Environment, seen: set[Any] | None = None) -> set[type[BaseModel]]:
    """The types of the environment."""
    seen = set() if seen is None else seen
    if isinstance(of, type) and issubclass(of, BaseModel) and of not in seen:
        seen.add(of)
        for field in of.model_fields.values():
            every_model(field.annotation, seen)
    for inner in get_args(of):
        every_model(inner, seen)
    return seen
