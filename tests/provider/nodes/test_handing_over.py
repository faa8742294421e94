"""Labels handed over from one field manager to another; a fake API server records what is applied."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gpuform.provider.nodes.cluster import hand_over, owned

pytestmark = pytest.mark.unit

OLD, NEW = "gpuform-pool-of-the-urn", "gpuform-pool-of-the-pool"


def entry(manager: str, *keys: str, operation: str = "Apply") -> dict[str, Any]:
    fields = {"f:metadata": {"f:labels": {f"f:{key}": {} for key in keys}}}
    return {"manager": manager, "operation": operation, "fieldsV1": fields}


def node(*entries: dict[str, Any]) -> Any:
    live = {"gpuform.io/pool": "a", "team": "x", "other": "y"}
    return {"metadata": {"name": "n", "uid": "1", "labels": live, "managedFields": list(entries)}}


class Client:
    def __init__(self) -> None:
        self.applied: list[tuple[str, dict[str, str]]] = []

    async def apply(self, path: str, body: Any, *, manager: str) -> None:
        assert path == "/api/v1/nodes/n"
        self.applied.append((manager, body["metadata"]["labels"]))


class Cluster:
    def __init__(self) -> None:
        self.client = Client()


def handed(found: Any, before: str, after: str) -> list[tuple[str, dict[str, str]]]:
    cluster: Any = Cluster()
    asyncio.run(hand_over(cluster, found, before, after))
    applied: list[tuple[str, dict[str, str]]] = cluster.client.applied
    return applied


def test_the_new_manager_applies_them_before_the_old_one_gives_them_up() -> None:
    found = node(entry(OLD, "gpuform.io/pool", "team", "gone"), entry("kubelet", "other", operation="Update"))
    assert owned(found, OLD) == {"gpuform.io/pool": "a", "team": "x"}
    assert handed(found, OLD, NEW) == [(NEW, {"gpuform.io/pool": "a", "team": "x"}), (OLD, {})]


def test_what_the_new_manager_has_already_stays() -> None:
    found = node(entry(OLD, "team"), entry(NEW, "other"))
    assert handed(found, OLD, NEW)[0] == (NEW, {"other": "y", "team": "x"})


def test_nothing_is_applied_if_there_is_nothing_to_hand_over() -> None:
    assert handed(node(), OLD, NEW) == []
    assert handed(node(entry(OLD, "team")), OLD, OLD) == []
