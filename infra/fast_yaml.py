"""libyaml's loader and dumper if PyYAML was built with it: eight times as fast."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as Dumper
    from yaml import CSafeLoader as Loader
except ImportError:
    from yaml import SafeDumper as Dumper  # type: ignore[assignment]
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

__all__ = ["Dumper", "Loader", "load_all"]


def load_all(text: str) -> Iterator[Any]:
    """The documents of a text, lazily. Raises yaml.YAMLError if it is not YAML."""
    return iter(yaml.load_all(text, Loader=Loader))
