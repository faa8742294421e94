from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from infra.config import parse
from infra.model.base.errors import InputError


def changed(good: Mapping[str, Any], *edits: Mapping[str, Any]) -> dict[str, Any]:
    """Apply edits to ``good``: each puts a value ``at`` a path or, with ``remove``, removes it.

    The index after the last item of a list appends; missing blocks on the way are made.
    """
    mapping: dict[str, Any] = copy.deepcopy(dict(good))
    for edit in edits:
        here: Any = mapping
        *parents, last = [int(part) if part.isdigit() else part for part in edit["at"].split("/")]
        for part in parents:
            here = here.setdefault(part, {}) if isinstance(here, dict) else here[part]
        if edit.get("remove"):
            del here[last]
        elif isinstance(here, list) and last == len(here):
            here.append(copy.deepcopy(edit["put"]))
        else:
            here[last] = copy.deepcopy(edit["put"])
    return mapping


def message(mapping: Mapping[str, Any], number: int = 1) -> str:
    """The error of the mapping; the first one if it has ``number``."""
    with pytest.raises(InputError) as caught:
        parse(dict(mapping))
    first, *others = caught.value.errors
    assert len(others) == number - 1, str(caught.value)
    return str(InputError(first.path, first.fact, first.remedy))
