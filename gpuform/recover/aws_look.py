"""How a resource that a killed run made is found at AWS, as data.

The calls are botocore's; the ids are those of the "Import" section of each type's page in Pulumi's registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TAGS = "our tags"
"""Stands for one filter per tag that the resource would carry."""


@dataclass(frozen=True)
class Call:
    """One call of botocore, ``service.operation``; texts in ``asked`` may hold {inputs[...]} and {found}."""

    name: str
    asked: Mapping[str, Any] = field(default_factory=dict)

    @property
    def service(self) -> str:
        """botocore's name of the service."""
        return self.name.split(".")[0]

    @property
    def operation(self) -> str:
        """botocore's name of the method."""
        return self.name.split(".")[1]


@dataclass(frozen=True)
class Look:
    """How one type is looked for.

    ``items`` (JMESPath) are the candidates in the answer of ``call``; ``where`` are paths in each and what
    they must say; ``key`` is the path of what tells one from another, ``{found}`` from then on; ``id`` is the
    id to import it under. ``tags`` is the path of a candidate's tags, in itself or in the answer of ``asks``:
    a name alone may be somebody else's. It is empty where there can be no other: a part of a thing that is
    known to be ours. ``alive`` is a path in the answer of ``asks`` that is true unless the candidate is
    going. ``{found}`` is what comes after the last ``after`` of what ``key`` says. ``none`` are error codes
    that mean: not there.
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
