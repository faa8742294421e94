"""Rules of many environments: valid, reproducible, bounded in labels; each alert has a test and a page."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate import REFERENCE, alerts
from infra.config import parse
from infra.model.environment import Environment
from infra.plan import monitoring
from infra.plan.rules import groups
from infra.plan.rules.alerts import RUNBOOKS
from infra.plan.rules.promql import NODE_LABELS, label
from tests.external import reference
from tests.plan import aws_environments
from tests.plan.environments import on
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
    "mps": [{"machine": "g2.5xlarge", "sharing": {"kind": "mps", "replicas": 4}}],
    "claimed": [{"machine": "g4.p1.40g", "sharing": {"kind": "dra"}}],
    "claimed slices": [{"machine": "g4.p1.40g", "sharing": {"kind": "dra", "layout": "all-1g.5gb"}}],
    "partly cut": [{"machine": "g4.p2.40g", "sharing": {**MIG, "devices": [0]}}],
    "shared slices": [{"machine": "g4.p2.40g", "sharing": {**MIG, "share": {"replicas": 2}}}],
    "single": [
        {"machine": "g4.p1.40g", "sharing": {"kind": "mig", "layout": "all-1g.5gb", "strategy": "single"}}
    ],
    "without a GPU": [{"machine": "m6i.xlarge"}],
    "switched": [{"machine": "p4d.24xlarge"}],
}


def stack(file: Path) -> Environment:
    return parse(yaml.safe_load(file.read_text())["config"]["gpuform:environment"])


def embedded(pools: list[dict[str, Any]]) -> Environment:
    return on("embedded", *pools, name="labs", gpu_operator={"mig_strategy": "mixed"})


def existing() -> Environment:
    """An existing cluster, which may be GKE."""
    return on("existing", {"name": "gpu", "gpu": {"models": ["T4"], "count": 1}}, name="labs")


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


def _sources() -> str:
    files = sorted(Path(__file__).parent.glob("*.[py]*"))
    return "".join(file.read_text() for file in files if file.suffix != ".pyc" and file != Path(__file__))


@pytest.mark.unit
def test_every_recorded_series_is_in_a_test() -> None:
    """A rule that no test of this folder names is untested."""
    named = set(re.findall(r"gpuform:[a-z]+:[a-z0-9_]+", _sources()))
    recorded = {rule["record"] for env in ENVIRONMENTS.values() for rule in rules(env) if "record" in rule}
    assert recorded <= named, recorded - named
    assert set(CONTRACT) <= recorded


@pytest.mark.unit
def test_every_alert_is_provoked_in_a_test() -> None:
    alerts = {rule["alert"] for rule in rules(world.environment()) if "alert" in rule}
    assert alerts == {rule["alert"] for rule in rules(elastic.elastic()) if "alert" in rule}
    assert alerts <= set(re.findall(r"\b(Gpu[A-Z]\w+)", _sources()))


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
    assert set(NODE_LABELS) <= set(monitoring.NODE_LABELS)


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
    # DCGM has these fields, NVIDIA's lists omit them; nothing needs them.
    omitted = ("FABRIC_MANAGER_STATUS", "ROW_REMAP_PENDING", "ENFORCED_POWER_LIMIT")
    assert read - known == {f"DCGM_FI_DEV_{name}" for name in omitted}


UNITS = {"m": 1, "h": 60}
LEAST = 3
"""Minutes: groups are evaluated every two minutes at most (``monitoring.interval``), at different moments.

With a range of one minute, every GPU of a stack with a longer interval was reported lost. On
Prometheus 3, which excludes the start of a range, an interval of one minute failed as well.
"""


@pytest.mark.unit
def test_no_range_may_be_empty_between_two_evaluations() -> None:
    short = {
        (rule.get("record") or rule["alert"], found)
        for group in groups(world.environment())
        for rule in group["rules"]
        for number, unit in re.findall(r"\[(\d+)([mh])[\]:]", rule["expr"])
        if int(number) * UNITS[unit] < LEAST
        for found in [number + unit]
    }
    assert short == set()


PAGES = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / RUNBOOKS).glob("*.md")}
CHAPTERS = ["What it means", "How to confirm", "What to do", "What not to do", "When it ends"]


@pytest.mark.unit
def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert sorted(PAGES) == sorted(alert.name for alert in alerts())


@pytest.mark.unit
@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_all_that_it_should_and_is_short(name: str) -> None:
    text = PAGES[name]
    assert re.findall(r"^# (.+)$", text, re.MULTILINE)[0] == name
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == CHAPTERS
    assert all(part.strip() for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])
    assert len(text.splitlines()) <= 70
    confirm = text.split("## How to confirm")[1].split("## ")[0]
    assert "`" in confirm, "nothing to type"


@pytest.mark.unit
def test_every_alert_has_severity_words_and_its_page() -> None:
    for rule in (alert.rule() for alert in alerts()):
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
        assert 15 <= len(rule["annotations"]["summary"]) <= 160, rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
        assert all(text == " ".join(text.split()) for text in rule["annotations"].values())


@pytest.mark.unit
def test_the_series_that_are_told_of_are_recorded() -> None:
    every = [group for env in ENVIRONMENTS.values() for group in groups(env)]
    recorded = {rule.get("record") for group in every for rule in group["rules"]}
    told = re.findall(r"^\| `(gpuform:\S+)`", (REFERENCE / "alerts.md").read_text(), re.MULTILINE)
    assert set(CONTRACT) <= set(told) <= recorded
