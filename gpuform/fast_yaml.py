"""YAML that others wrote, megabytes of it: libyaml reads eight times as fast as PyYAML's own parser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may have been built without libyaml


def load_all(text: str) -> Iterator[Any]:
    """The documents, one after the other. Raises yaml.YAMLError for what is no YAML."""
    return iter(yaml.load_all(text, Loader=_Loader))
