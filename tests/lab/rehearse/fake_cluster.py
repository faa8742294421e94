"""A rehearsal's cluster for tests: lists by path, and a record of what is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuform.checkout.errors import Failure
from lab.rehearse.cluster import Cluster, Json


class FakeCluster(Cluster):
    """``fails``: it does not answer."""

    def __init__(self, lists: Mapping[str, list[Json]] | None = None) -> None:
        self.lists = dict(lists or {})
        self.requests: list[tuple[str, Any]] = []
        """Path and body of each patch, path and None of each deletion."""
        self.applied: list[Any] = []
        self.fails = False

    def close(self) -> None:
        """Nothing is open."""

    def items(self, path: str, name: str = "") -> list[Json]:
        if self.fails:
            raise Failure("the control plane", "is gone", "wait")
        return self.lists.get(path, [])

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        self.requests.append((path, body))

    def delete(self, path: str) -> None:
        self.requests.append((path, None))

    def apply(self, manifests: Iterable[Any], server_side: bool = True) -> None:
        self.applied += manifests
