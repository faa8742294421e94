"""Every alert has texts and a runbook, every runbook an alert; the list of alerts is current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.generate import REFERENCE, alerts
from infra.plan.rules import groups
from infra.plan.rules.alerts import RUNBOOKS
from tests.plan.rules import test_check as environments

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
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


def test_the_series_that_are_told_of_are_recorded() -> None:
    every = [group for env in environments.ENVIRONMENTS.values() for group in groups(env)]
    recorded = {rule.get("record") for group in every for rule in group["rules"]}
    told = re.findall(r"^\| `(gpuform:\S+)`", (REFERENCE / "alerts.md").read_text(), re.MULTILINE)
    assert set(environments.CONTRACT) <= set(told) <= recorded
