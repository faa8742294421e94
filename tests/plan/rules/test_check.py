"""Rules of many environments: valid, reproducible, bounded in labels, and each of them tested."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.model.environment import Environment
from infra.plan import monitoring_values
from infra.plan.rules import groups
from infra.plan.rules.promql import NODE_LABELS, label
from tests.external import reference
from tests.plan import aws_environments
from tests.plan.rules import test_elastic as elastic
from tests.plan.rules import world
from tests.plan.rules.promtool import Promtool

ROOT = Path(__file__).parents[3]
STACKS = sorted(ROOT.glob("Pulumi.*.yaml"))
CONTRACT = {
    "gpuform:node:info": "node pool",
    "gpuform:device:util_ratio": "node pool gpu UUID modelName GPU_I_ID GPU_I_PROFILE",
    "gpuform:device:memory_used_bytes": "node pool gpu UUID modelName GPU_I_ID GPU_I_PROFILE",
    "gpuform:device:memory_total_bytes": "node pool gpu UUID modelName GPU_I_ID GPU_I_PROFILE",
    "gpuform:gpu:power_watts": "node pool gpu UUID modelName",
    "gpuform:gpu:energy_joules_total": "node pool gpu UUID modelName",
    "gpuform:gpu:temperature_celsius": "node pool gpu UUID modelName",
    "gpuform:pod:gpus_requested": "namespace pod node pool sharing resource",
    "gpuform:pod:gpus_used": "namespace pod node pool sharing resource",
    "gpuform:namespace:gpus_requested": "namespace pool sharing",
    "gpuform:namespace:gpus_used": "namespace pool sharing",
    "gpuform:namespace:gpus_idle": "namespace pool sharing",
    "gpuform:namespace:gpu_hours_requested_1h": "namespace pool sharing",
    "gpuform:namespace:gpu_hours_used_1h": "namespace pool sharing",
    "gpuform:namespace:gpu_hours_idle_1h": "namespace pool sharing",
    "gpuform:pool:gpus_declared": "pool sharing",
    "gpuform:pool:gpus_allocatable": "pool sharing",
    "gpuform:pool:gpus_requested": "pool sharing",
    "gpuform:pool:gpus_used": "pool sharing",
    "gpuform:resource:allocatable": "node pool resource",
    "gpuform:resource:requested": "node pool resource",
    "gpuform:resource:limits": "node pool resource",
    "gpuform:fault:active": "node pool gpu UUID xid class reason",
}
"""Series that dashboards, reports and the health loop read, and all their labels."""
MIG = {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}
ODD: dict[str, list[dict[str, Any]]] = {
    "mps": [{"machine": "g2.5xlarge", "nodes": 1, "sharing": {"kind": "mps", "replicas": 4}}],
    "claimed": [{"machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "dra"}}],
    "claimed slices": [
        {"machine": "g4.p1.40g", "nodes": 1, "sharing": {"kind": "dra", "layout": "all-1g.5gb"}}
    ],
    "partly cut": [{"machine": "g4.p2.40g", "nodes": 1, "sharing": {**MIG, "devices": [0]}}],
    "shared slices": [{"machine": "g4.p2.40g", "nodes": 1, "sharing": {**MIG, "share": {"replicas": 2}}}],
    "single": [
        {
            "machine": "g4.p1.40g",
            "nodes": 1,
            "sharing": {"kind": "mig", "layout": "all-1g.5gb", "strategy": "single"},
        }
    ],
    "without a GPU": [{"machine": "m6i.xlarge", "nodes": 1}],
    "switched": [{"machine": "p4d.24xlarge", "nodes": 1}],
}


def stack(file: Path) -> Environment:
    return parse(yaml.safe_load(file.read_text())["config"]["gpuform:environment"])


def embedded(pools: list[dict[str, Any]]) -> Environment:
    named = [{"name": f"p{index}", **pool} for index, pool in enumerate(pools)]
    operator = {"mig_strategy": "mixed"}
    return parse({"name": "labs", "cluster": {"kind": "embedded"}, "gpu_operator": operator, "pools": named})


def existing() -> Environment:
    """An existing cluster, which may be GKE."""
    pool = {"name": "gpu", "gpu": {"models": ["T4"], "count": 1}, "selector": {"a": "b"}}
    return parse({"name": "labs", "cluster": {"kind": "existing", "kubeconfig": "k"}, "pools": [pool]})


def counts() -> Environment:
    return aws_environments.aws(aws_environments.COUNTS)


ENVIRONMENTS = {
    **{file.name: stack(file) for file in STACKS},
    **{name: embedded(pools) for name, pools in ODD.items()},
    "existing": existing(),
    "elastic": elastic.elastic(),
    "nodes of different sizes": counts(),
    "the world of the tests": world.environment(),
}


def rules(env: Environment) -> list[dict[str, Any]]:
    return [rule for group in groups(env) for rule in group["rules"]]


@pytest.mark.engine
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_promtool_finds_nothing_to_say(promtool: Promtool, name: str) -> None:
    if rules(ENVIRONMENTS[name]):
        promtool.check(ENVIRONMENTS[name])


@pytest.mark.unit
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_same_environment_gives_the_same_rules(name: str) -> None:
    env = ENVIRONMENTS[name]
    assert groups(env) == groups(env.model_copy(deep=True))


@pytest.mark.unit
def test_without_a_gpu_there_is_nothing() -> None:
    assert groups(ENVIRONMENTS["without a GPU"]) == []


@pytest.mark.unit
def test_every_recorded_series_is_in_a_test() -> None:
    """A rule that no test of this folder names is untested."""
    text = "".join(file.read_text() for file in Path(__file__).parent.glob("*.py") if file != Path(__file__))
    named = set(re.findall(r"gpuform:[a-z]+:[a-z0-9_]+", text))
    recorded = {rule["record"] for env in ENVIRONMENTS.values() for rule in rules(env) if "record" in rule}
    assert recorded <= named, recorded - named
    assert set(CONTRACT) <= recorded


@pytest.mark.unit
def test_every_alert_is_provoked_in_a_test() -> None:
    text = "".join(file.read_text() for file in Path(__file__).parent.glob("*.py") if file != Path(__file__))
    alerts = {rule["alert"] for rule in rules(world.environment()) if "alert" in rule}
    assert alerts == {rule["alert"] for rule in rules(elastic.elastic()) if "alert" in rule}
    assert alerts <= set(re.findall(r'"(Gpu\w+)"', text))


@pytest.mark.unit
def test_durations_stand_in_the_text() -> None:
    """A rehearsal divides durations; it could not change a number of seconds in an expression."""
    for rule in rules(elastic.elastic()):
        assert not re.search(r"time\(\)|timestamp\(|predict_linear|\[[^\]]*:", rule["expr"])
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


@pytest.mark.unit
def test_node_labels_that_are_read_are_asked_for() -> None:
    """kube-state-metrics exports only the labels that it is configured to export."""
    read = {
        found
        for env in ENVIRONMENTS.values()
        for rule in rules(env)
        for found in re.findall(r"label_(?!replace)[a-z0-9_]+", rule["expr"])
    }
    assert read == {f"label_{label(name)}" for name in NODE_LABELS}
    assert set(NODE_LABELS) <= set(monitoring_values.NODE_LABELS)


@pytest.mark.unit
def test_dcgm_knows_the_metrics_by_these_names() -> None:
    rows = [
        row for file in reference("dcgm").glob("*.csv") for row in csv.reader(file.read_text().splitlines())
    ]
    known = {row[0].lstrip("# ").strip() for row in rows if row}
    read = {
        name
        for env in ENVIRONMENTS.values()
        for rule in rules(env)
        for name in re.findall(r"DCGM_[A-Z_]+", rule["expr"])
    }
    # DCGM has these two fields, NVIDIA's lists omit them; nothing needs them.
    assert read - known == {"DCGM_FI_DEV_FABRIC_MANAGER_STATUS", "DCGM_FI_DEV_ROW_REMAP_PENDING"}
