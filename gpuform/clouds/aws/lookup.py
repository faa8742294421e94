"""How a resource of a killed run is found at AWS, as data.

The calls are botocore's; the ids are those of the "Import" section of each type's page in Pulumi's registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TAGS = "our tags"
"""Placeholder for one filter per tag that the resource would have."""


@dataclass(frozen=True)
class Call:
    """One botocore call, ``service.operation``; texts in ``asked`` may contain {inputs[...]} and {found}."""

    name: str
    asked: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Look:
    """How resources of one type are found.

    ``items`` (JMESPath) are the candidates in the answer of ``call``; ``where`` maps paths in a candidate to
    their required values; ``key`` is the path of what identifies a candidate, ``{found}`` from then on;
    ``id`` is its import id. ``tags`` is the path of a candidate's tags, in itself or in the answer of
    ``asks``: a name alone may belong to another owner. It is empty if no other can exist: a part of a
    resource that is known to be ours. ``alive`` is a path in the answer of ``asks`` that is true unless the
    candidate is being deleted. ``{found}`` is what comes after the last ``after`` in the value of ``key``.
    ``none`` are error codes that mean: does not exist.
    """

    call: Call
    items: str
    key: str
    id: str = "{found}"
    where: Mapping[str, str] = field(default_factory=dict)
    tags: str = ""
    asks: Call | None = None
    alive: str = ""
    after: str = ""
    none: tuple[str, ...] = ()
