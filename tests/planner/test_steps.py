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
    needs = demands.needs_of(env, given, Path())
    proposal = propose(make_plan(env, needs, candidates_of(env, (), PriceList())), env)
    assert proposal.refusal == ""
    steps = sequence(env, proposal.environment)
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


def test_hosts_are_cut_in_turns_as_they_become_free() -> None:
    steps = planned(hosts(4, 8), SMALL)
    assert changes(steps) == [
        ({"a100": 3, "a100-2": 1}, ("default/serve",), ()),
        ({"a100": 1, "a100-2": 3}, (), ()),
    ]
    held = {pool["name"]: pool["hosts"] for pool in steps[0].environment["pools"]}
    assert held.pop("cpu") == [{"name": "c0"}]
    assert held == {"a100": [{"name": name} for name in ("h0", "h2", "h3")], "a100-2": [{"name": "h1"}]}


def test_without_a_free_host_the_pods_that_must_wait_are_named() -> None:
    assert changes(planned(hosts(3, 8), SMALL)) == [
        ({"a100": 1, "a100-2": 2}, ("default/serve",), ("default/serve",))
    ]
