"""Sequences of updates from a stack's pools to planned ones: workloads keep GPUs until they have others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.config import parse
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.planner import demands
from infra.planner.candidates import candidates_of
from infra.planner.demands import Demand
from infra.planner.plan import make_plan
from infra.planner.proposal import propose
from infra.planner.steps import Step, sequence
from tests.build.environments import on

pytestmark = pytest.mark.unit

A100 = {"models": ["A100-40GB"], "count": 4}
TRAIN: dict[str, Any] = {"name": "train", "kind": "deployment", "pool": "a100", "count": 4}
SERVE: dict[str, Any] = {"name": "serve", "kind": "deployment", "pool": "a100"}
SMALL = Demand.model_validate({"name": "serve", "gpu_memory": "4Gi", "compute": 0.1})


def planned(env: Environment, *given: Demand) -> list[Step]:
    before, needs = (demands.needs_of(env, some, Path()) for some in ((), given))
    proposal = propose(make_plan(env, needs, candidates_of(env, (), PriceList())), env)
    assert proposal.refusal == ""
    steps = sequence(env, before, proposal, {})
    assert not steps or parse(steps[-1].environment) == parse(proposal.environment)
    for step in steps:
        parse(step.environment)
    return steps


def changes(steps: Sequence[Step]) -> list[tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]]:
    return [(dict(step.nodes), step.moved, step.waiting) for step in steps]


def embedded(nodes: int, serve: int) -> Environment:
    """``train`` needs the whole GPUs of a node; ``serve`` has whole GPUs, and could use slices."""
    pool = {"name": "a100", "gpu": A100, "nodes": nodes}
    return on("embedded", pool, workloads=[TRAIN, SERVE | {"replicas": serve}])


def hosts(number: int, serve: int) -> Environment:
    pool = {"name": "a100", "gpu": A100, "hosts": [f"h{index}" for index in range(number)]}
    return on("hosts", pool, {"name": "cpu", "hosts": ["c0"]}, workloads=[TRAIN, SERVE | {"replicas": serve}])


def test_a_plan_that_changes_nothing_needs_no_update() -> None:
    assert planned(embedded(2, 4)) == []


def test_nodes_of_a_cloud_are_cut_beside_those_that_go_after_the_pods_have_moved() -> None:
    assert changes(planned(embedded(4, 12), SMALL)) == [
        ({"a100": 4, "a100-2": 1}, ("default/serve",), ()),
        ({"a100": 1, "a100-2": 1}, (), ()),
    ]


def test_nodes_that_are_free_already_go_with_the_first_update() -> None:
    (first, second) = planned(embedded(9, 12), SMALL)
    assert first.nodes == {"a100": 4, "a100-2": 1}
    assert second.nodes == {"a100": 1, "a100-2": 1}


def test_a_pool_that_all_workloads_leave_goes_with_the_update_that_moves_them() -> None:
    env = on("embedded", {"name": "a100", "gpu": A100, "nodes": 3}, workloads=[SERVE | {"replicas": 12}])
    assert changes(planned(env, SMALL)) == [({"a100-2": 1}, ("default/serve",), ())]


def test_a_free_host_is_cut_and_the_others_stay() -> None:
    (step,) = planned(hosts(4, 8), SMALL)
    assert changes([step]) == [({"a100": 3, "a100-2": 1}, ("default/serve",), ())]
    held = {pool["name"]: pool["hosts"] for pool in step.environment["pools"]}
    assert held.pop("cpu") == [{"name": "c0"}]
    assert held == {"a100": [{"name": name} for name in ("h0", "h1", "h2")], "a100-2": [{"name": "h3"}]}


def test_hosts_are_cut_in_turns_as_they_become_free() -> None:
    """Three workloads fit on two cut hosts, of which one is free before the first two have moved."""
    pool = {"name": "a100", "gpu": A100, "hosts": [f"h{index}" for index in range(10)]}
    works = [{**SERVE, "name": name, "replicas": 10} for name in ("one", "two", "three")]
    env = on("hosts", pool, workloads=[TRAIN, *works])
    small = [SMALL.model_copy(update={"name": work["name"], "compute": 0.12}) for work in works]
    first, second = planned(env, *small)
    assert changes([first, second]) == [
        ({"a100": 9, "a100-2": 1}, ("default/one", "default/three"), ()),
        ({"a100": 8, "a100-2": 2}, ("default/two",), ()),
    ]
    held = {pool["name"]: [host["name"] for host in pool["hosts"]] for pool in first.environment["pools"]}
    assert held["a100-2"] == ["h9"]
    slices = {work["name"]: "slice" in work for work in first.environment["workloads"]}
    assert slices == {"train": False, "one": True, "two": False, "three": True}


def test_without_a_free_host_the_pods_that_must_wait_are_named() -> None:
    assert changes(planned(hosts(3, 8), SMALL)) == [
        ({"a100": 2, "a100-2": 1}, ("default/serve",), ("default/serve",))
    ]
