"""Nodes that had a layout and left the pool, on a played cluster."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest

from gpuform.provider.handler import Call, Engine
from gpuform.provider.nodes.layout import NOTE, Note
from gpuform.provider.nodes.mig_layout import MigLayout
from gpuform.provider.nodes.pool_nodes import PoolNodes

pytestmark = pytest.mark.unit

CONFIG, STATE, POOL = "nvidia.com/mig.config", "nvidia.com/mig.config.state", "gpuform.io/pool"
HALVES = {"nvidia.com/mig-3g.20gb": 2}
INPUTS = {"kubeconfig": "/k", "selector": f"{POOL}=a", "config": "all-3g.20gb", "offers": HALVES}


class Client:
    async def apply(self, path: str, body: dict[str, Any], *, manager: str) -> None:
        pass


@dataclass
class Played:
    by_name: dict[str, dict[str, Any]] = field(default_factory=dict)
    client: Client = field(default_factory=Client)

    def add(self, name: str, pool: str | None = "a", note: bool = False) -> None:
        labels = {CONFIG: "all-3g.20gb", STATE: "success", **({POOL: pool} if pool else {})}
        text = Note("all-disabled", "all-3g.20gb", cordoned=True).text()
        self.by_name[name] = {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": labels,
                "annotations": {NOTE: text} if note else {},
            },
            "spec": {"unschedulable": True} if note else {},
            "status": {"allocatable": {key: str(count) for key, count in HALVES.items()}},
        }

    async def nodes(self, selector: str) -> list[dict[str, Any]]:
        key, _, value = selector.partition("=")
        return [deepcopy(one) for one in self.by_name.values() if one["metadata"]["labels"].get(key) == value]

    async def node(self, name: str) -> dict[str, Any] | None:
        return deepcopy(self.by_name.get(name))

    async def patch(self, name: str, body: dict[str, Any]) -> None:
        _merge(self.by_name[name], body)


def _merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(into.setdefault(key, {}), value)
        elif value is None:
            into.pop(key, None)
        else:
            into[key] = value


def ask(cluster: Played, verb: str, *args: Any) -> Any:
    handler = MigLayout(lambda inputs: cluster)  # type: ignore[arg-type, return-value]
    call = Call("urn:pulumi:d::t::gpuform:nodes:MigLayout::a", "t", "a", Engine(), asyncio.Event())
    return asyncio.run(getattr(handler, verb)(call, *args))


def test_a_node_that_was_on_its_way_elsewhere_does_not_keep_that_label() -> None:
    cluster = Played()
    cluster.add("left", pool=None, note=True)
    cluster.add("stays")
    asked = {**INPUTS, "config": "all-disabled"}
    ask(cluster, "update", "a", asked, {**asked, "nodes": ["left"]}, INPUTS)
    assert CONFIG not in cluster.by_name["left"]["metadata"]["labels"]


def test_with_the_pool_opens_what_a_first_run_left_closed_that_no_state_knows_of() -> None:
    cluster = Played()
    cluster.add("killed", note=True)
    handler = PoolNodes(lambda inputs: cluster)  # type: ignore[arg-type, return-value]
    call = Call("urn:pulumi:d::t::gpuform:nodes:PoolNodes::a", "t", "a", Engine(), asyncio.Event())
    inputs = {"kubeconfig": "/k", "selector": f"{POOL}=a", "labels": {}}
    asyncio.run(handler.delete(call, "a", inputs, {**inputs, "nodes": ["killed"]}))
    killed = cluster.by_name["killed"]
    assert (killed["metadata"]["annotations"], killed["spec"]) == ({}, {})
    assert CONFIG not in killed["metadata"]["labels"]


def differs(cluster: Played, olds: dict[str, Any]) -> bool:
    return bool(ask(cluster, "diff", "a", INPUTS, olds, INPUTS).changes)


def test_a_node_that_leaves_the_pool_loses_the_layouts_label_and_is_opened() -> None:
    cluster = Played()
    cluster.add("stays")
    cluster.add("left", pool=None, note=True)  # a run was killed before it could uncordon it
    olds = {**INPUTS, "nodes": ["gone", "left", "stays"]}
    assert differs(cluster, olds)
    outputs = ask(cluster, "update", "a", INPUTS, olds, INPUTS)
    left = cluster.by_name["left"]
    assert outputs["nodes"] == ["stays"]
    assert CONFIG not in left["metadata"]["labels"]
    assert (left["metadata"]["annotations"], left["spec"]) == ({}, {})
    assert cluster.by_name["stays"]["metadata"]["labels"][CONFIG] == "all-3g.20gb"
    assert not differs(cluster, outputs)


def test_a_node_that_another_pool_has_is_left_to_that() -> None:
    cluster = Played()
    cluster.add("stays")
    cluster.add("moved", pool="b", note=True)
    before, olds = deepcopy(cluster.by_name["moved"]), {**INPUTS, "nodes": ["moved", "stays"]}
    assert not differs(cluster, olds)
    assert ask(cluster, "update", "a", INPUTS, olds, INPUTS)["nodes"] == ["stays"]
    assert cluster.by_name["moved"] == before
