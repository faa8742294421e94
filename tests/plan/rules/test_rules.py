"""Rules of many environments: valid, reproducible, bounded in labels; each alert has a test and a page."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from docs.generate import REFERENCE, alerts
from infra.plan import monitoring
from infra.plan.rules import groups
from infra.plan.rules.alerts import RUNBOOKS
from infra.plan.rules.promql import NODE_LABELS, label
from tests.external import reference
from tests.plan.rules.promtool import Promtool
from tests.plan.rules.world import CONTRACT, ENVIRONMENTS, ROOT

pytestmark = pytest.mark.unit

RULES: dict[str, list[dict[str, Any]]] = {
    name: [rule for group in groups(env) for rule in group["rules"]] for name, env in ENVIRONMENTS.items()
}
EVERY_RULE = [rule for rules in RULES.values() for rule in rules]
RECORDED = {rule["record"] for rule in EVERY_RULE if "record" in rule}
SHORTEST_MINUTES = 3
"""Groups are evaluated every two minutes at most (``monitoring.interval``), at different moments.

With a range of one minute, every GPU of a stack with a longer interval was reported lost. On
Prometheus 3, which excludes the start of a range, an interval of one minute failed as well.
"""


def read(pattern: str) -> set[str]:
    """What the pattern finds in the expressions of all rules."""
    return {found for rule in EVERY_RULE for found in re.findall(pattern, rule["expr"])}


@pytest.mark.engine
@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if rules])
def test_promtool_finds_nothing_to_say(promtool: Promtool, name: str) -> None:
    promtool.check(ENVIRONMENTS[name])


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_same_environment_gives_the_same_rules(name: str) -> None:
    env = ENVIRONMENTS[name]
    assert groups(env) == groups(env.model_copy(deep=True))


def test_without_a_gpu_there_are_no_rules() -> None:
    assert [name for name, rules in RULES.items() if not rules] == ["without a GPU"]


def test_every_recorded_series_and_every_alert_is_in_a_test() -> None:
    """A rule that no test of this folder names is untested."""
    files = sorted(Path(__file__).parent.glob("*.[py]*"))
    sources = "".join(file.read_text() for file in files if file.suffix != ".pyc" and file != Path(__file__))
    recorded = set(re.findall(r"gpuform:[a-z]+:[a-z0-9_]+", sources))
    assert set(CONTRACT) <= RECORDED <= recorded, RECORDED - recorded
    fired = {name: {rule["alert"] for rule in rules if "alert" in rule} for name, rules in RULES.items()}
    assert fired["healthy"] == fired["elastic"] <= set(re.findall(r"\b(Gpu[A-Z]\w+)", sources))


def test_durations_stand_in_the_text() -> None:
    """A rehearsal divides durations; it could not change a number of seconds in an expression."""
    assert read(r"time\(\)|timestamp\(|predict_linear|\[[^\]]*:") == set()
    assert all(re.fullmatch(r"\d+[smh]", rule.get("for", "1m")) for rule in EVERY_RULE)


def test_node_labels_that_are_read_are_asked_for() -> None:
    """kube-state-metrics exports only the labels that it is configured to export; Kueue's are of pods."""
    assert read(r"label_(?!replace|kueue)[a-z0-9_]+") == {f"label_{label(name)}" for name in NODE_LABELS}
    assert set(NODE_LABELS) <= set(monitoring.NODE_LABELS)


def test_dcgm_knows_the_metrics_by_these_names() -> None:
    texts = [file.read_text() for file in reference("dcgm").glob("*.csv")]
    known = {row[0].lstrip("# ").strip() for text in texts for row in csv.reader(text.splitlines()) if row}
    # DCGM has these fields, NVIDIA's lists omit them; nothing needs them.
    omitted = ("FABRIC_MANAGER_STATUS", "ROW_REMAP_PENDING", "ENFORCED_POWER_LIMIT")
    assert read("DCGM_[A-Z_]+") - known == {f"DCGM_FI_DEV_{name}" for name in omitted}


def test_no_range_may_be_empty_between_two_evaluations() -> None:
    ranges = {text.strip("[:]") for text in read(r"\[\d+[mh][\]:]")}
    minutes = {text: int(text[:-1]) * {"m": 1, "h": 60}[text[-1]] for text in ranges}
    assert {text for text, length in minutes.items() if length < SHORTEST_MINUTES} == set()


PAGES = {file.stem: file.read_text(encoding="utf-8") for file in (ROOT / RUNBOOKS).glob("*.md")}
CHAPTERS = ["What it means", "How to confirm", "What to do", "What not to do", "When it ends"]


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert sorted(PAGES) == sorted(alert.name for alert in alerts())


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_all_that_it_should_and_is_short(name: str) -> None:
    text = PAGES[name]
    assert re.findall(r"^# (.+)$", text, re.MULTILINE)[0] == name
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == CHAPTERS
    assert all(part.strip() for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:])
    assert len(text.splitlines()) <= 70
    confirm = text.split("## How to confirm")[1].split("## ")[0]
    assert "`" in confirm, "nothing to type"


def test_every_alert_has_severity_words_and_its_page() -> None:
    for rule in (alert.rule() for alert in alerts()):
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks/{rule['alert']}.md"
        assert 15 <= len(rule["annotations"]["summary"]) <= 160, rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")
        assert all(text == " ".join(text.split()) for text in rule["annotations"].values())


def test_series_of_the_reference_page_are_recorded() -> None:
    named = re.findall(r"^\| `(gpuform:\S+)`", (REFERENCE / "alerts.md").read_text(), re.MULTILINE)
    assert set(CONTRACT) <= set(named) <= RECORDED
