"""Every query of every dashboard against a real Prometheus with our rules, on made-up metrics.

test_dashboards.py of the journeys tests the whole chain, with the simulator's metrics, on the control
plane. This file has what a simulated cluster lacks: Karpenter's series, prices of every pool, and a
silent exporter beside a faulty GPU.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.model.base.prices import Cost
from infra.model.environment import Environment
from infra.model.gpu.dcgm import DEFAULT
from infra.model.platform.scheduling import Namespace
from infra.model.workload.queues import Queues, Team
from infra.model.workload.serving import Scale
from infra.model.workload.workload import InferenceWorkload
from infra.plan.dashboards import dashboards
from infra.plan.rules import groups
from lab.toolchain import Toolchain
from tests.plan.dashboards.reading import STACKS, environment, filled, metrics, queries
from tests.plan.dashboards.synthetic import Ask, SyntheticMetrics, running

pytestmark = [pytest.mark.tools, pytest.mark.nightly]

OF_OTHERS = {
    *DEFAULT,
    *("up", "ALERTS", "ALERTS_FOR_STATE"),
    *("kube_node_labels", "kube_node_spec_taint", "kube_resourcequota"),
    *("kube_pod_status_ready_time", "kube_pod_created"),
    *("karpenter_nodepools_limit", "karpenter_nodepools_usage"),
    "kueue_admission_wait_time_seconds_bucket",
    "nv_inference_request_success",
}
"""Series of dcgm-exporter, Prometheus, kube-state-metrics, Karpenter, Kueue and Triton."""

OF_NO_POOL = {
    "Pods pending for a GPU": "they have no node, and may fit several pools",
    "Pending pods": "the same",
    "Pending pods by reason": "the same",
    "Quotas of namespaces": "a quota is of a resource, which several pools may offer",
    "Time in the queue": "a queue may have several",
    "Requests per second per GPU": "a workload may run in several",
    "Cold starts": "the same",
    "Limits of Karpenter's pools": "of NodePools, of which a pool may have several",
}
"""Panels that show the same for every chosen pool, and why."""


def prepared(stack: str) -> Environment:
    """The stack, with a quota, a queue and a model, and on OpenStack with prices, which no list has."""
    env: Environment = environment(stack)
    quota = (Namespace(name="science", quota={env.pools[0].name: 8}),)
    flavors = {pool.machine: 1.5 for pool in env.pools} if env.cluster.kind == "openstack" else {}
    cost = Cost(prices=flavors) if flavors else env.cost
    team = Team(name="arts", namespaces=("arts",), quota={env.pools[0].name: 8})
    web: dict[str, Any] = {"name": "web", "namespace": "science", "kind": "inference", "image": "a:1"}
    model = InferenceWorkload(**web, scale=Scale(max=4, qps_per_replica=50))
    added = {"queues": Queues(teams=(team,)), "workloads": (*env.workloads, model)}
    return env.model_copy(update={"namespaces": quota, "cost": cost, **added})


@pytest.mark.parametrize("stack", STACKS)
def test_every_metric_is_recorded_or_somebody_elses(stack: str) -> None:
    env = prepared(stack)
    recorded = {rule["record"] for group in groups(env) for rule in group["rules"] if "record" in rule}
    for query in queries(dashboards(env)):
        assert set() < metrics(query.expr) <= recorded | OF_OTHERS, query


@pytest.mark.parametrize("stack", STACKS)
def test_promtool_reads_every_query(stack: str, toolchain: Toolchain, tmp_path: Path) -> None:
    found = list(queries(dashboards(prepared(stack))))
    rules = [{"record": f"a:{index}", "expr": filled(query.expr)} for index, query in enumerate(found)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    command = [str(toolchain.path("promtool")), "check", "rules", "--lint=none", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"{len(found)} rules" in done.stdout


@pytest.fixture(scope="module", params=["local", "aws-prod", "openstack-dev"])
def live(
    request: pytest.FixtureRequest, toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Environment, Ask]]:
    env = prepared(request.param)
    folder = tmp_path_factory.mktemp("prometheus")
    with running(toolchain.path("prometheus"), folder, SyntheticMetrics(env)) as ask:
        yield env, ask


def test_every_query_returns_series(live: tuple[Environment, Ask]) -> None:
    env, ask = live
    values = {
        query.name: [item["value"][1] for item in ask(filled(query.expr))]
        for query in queries(dashboards(env))
    }
    assert not [name for name, found in values.items() if not found]
    assert not [name for name, found in values.items() if {"NaN", "+Inf"} & set(found)]


def test_busy_idle_and_free_money_are_what_gpus_cost(live: tuple[Environment, Ask]) -> None:
    env, ask = live
    table = {item.ref: item.expr for item in queries(dashboards(env)) if item.panel == "Pools, USD per hour"}

    def by_pool(ref: str) -> dict[str, float]:
        return {item["metric"]["pool"]: float(item["value"][1]) for item in ask(filled(table[ref]))}

    cost, parts = by_pool("A"), [by_pool(ref) for ref in "CDEF"]
    assert parts[0].keys() == parts[3].keys()
    for pool in parts[0]:
        assert sum(part[pool] for part in parts) == pytest.approx(cost[pool], rel=1e-6)


def test_rows_and_legends_are_made_of_labels_that_are_there(live: tuple[Environment, Ask]) -> None:
    """A label that a table does not name becomes a column headed by Prometheus's label name."""
    env, ask = live
    for query in queries(dashboards(env)):
        series = [set(item["metric"]) for item in ask(filled(query.expr))]
        if query.drawn["type"] == "table":
            steps = {item["id"]: item["options"] for item in query.drawn["transformations"]}
            assert set().union(*series) <= set(steps["organize"]["renameByName"]), query
        else:
            named = set(re.findall(r"{{(\w+)}}", query.legend)) - {"GPU_I_ID", "GPU_I_PROFILE"}
            assert all(named <= labels for labels in series), query


def test_no_panel_draws_more_lines_than_anybody_can_tell_apart(live: tuple[Environment, Ask]) -> None:
    """Panels with one line for each GPU or slice draw the highest 50; no other panel is cut."""
    env, ask = live
    for query in queries(dashboards(env)):
        if query.drawn["type"] in ("timeseries", "bargauge"):
            by_gpu = any("gpu" in item["metric"] for item in ask(filled(query.expr)))
            assert query.expr.startswith("topk(50, ") == by_gpu, query


@pytest.mark.parametrize("stack", STACKS)
def test_every_query_follows_the_pool_that_is_chosen(stack: str) -> None:
    for query in queries(dashboards(prepared(stack))):
        assert ("$pool" in query.expr) != (query.panel in OF_NO_POOL), query


def test_choosing_a_pool_leaves_only_its_series(live: tuple[Environment, Ask]) -> None:
    env, ask = live
    chosen = next(pool.name for pool in env.pools if pool.gpus)
    nodes = {name for name, pool in SyntheticMetrics(env).nodes if pool.name == chosen}
    for query in queries(dashboards(env)):
        if query.panel not in OF_NO_POOL:
            expr = re.sub(r"\$pool\b", chosen, query.expr)
            found = [item["metric"] for item in ask(filled(expr))]
            assert {entry["pool"] for entry in found if "pool" in entry} <= {chosen}, query
            assert {one["node"] for one in found if "node" in one} <= nodes, query
