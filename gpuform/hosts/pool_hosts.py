"""What the nodes of a pool's hosts get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PoolHosts:
    """Labels, taints and sharing for the nodes of one pool's hosts."""

    pool: str
    hosts: Sequence[str]
    labels: Mapping[str, str]
    taints: Sequence[Mapping[str, Any]]
    startup: Mapping[str, Any] | None = None
    sharing: Mapping[str, Any] | None = None
