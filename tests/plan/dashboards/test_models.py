"""The dashboards' JSON: what Grafana needs, and what a reader needs of each panel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

from infra.model.platform.monitoring import Monitoring
from infra.plan.dashboards import NAMES, dashboards
from tests.plan.dashboards.reading import ROOT, STACKS, environment, panels, queries
from tests.plan.same_bytes import outputs

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).with_name("golden.txt")
EVERY = [(stack, name) for stack in STACKS for name in NAMES]


@pytest.fixture(scope="module")
def models() -> dict[str, dict[str, dict[str, Any]]]:
    return {stack: dashboards(environment(stack)) for stack in STACKS}


Models = dict[str, dict[str, dict[str, Any]]]


def test_they_are_what_was_reviewed(models: Models) -> None:
    """SHA-256 of each. GPUFORM_UPDATE_GOLDEN=1 writes the file again: review infra/plan/dashboards first."""
    made = "".join(f"{_sum(model)}  {name}\n" for name, model in models["local"].items())
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        GOLDEN.write_text(made, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == made


def _sum(model: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(model, sort_keys=True).encode()).hexdigest()


@pytest.mark.tools
def test_the_bytes_do_not_depend_on_the_process() -> None:
    script = (
        "import json, pathlib; from infra.config import load; from infra.plan.dashboards import dashboards;"
        "print(json.dumps(dashboards(load(pathlib.Path('Pulumi.local.yaml')))))"
    )
    assert len(outputs(script)) == 1


@pytest.mark.tools
def test_grafanas_sdk_is_loaded_for_dashboards_only() -> None:
    script = (
        "import sys; import infra.plan.dashboards; import infra.__main__;"
        "sys.exit(any(name.startswith('grafana_foundation_sdk') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", script], cwd=ROOT).returncode == 0


@pytest.mark.parametrize(("stack", "name"), EVERY)
def test_grafanas_own_models_read_them_without_loss(models: Models, stack: str, name: str) -> None:
    made = models[stack][name]
    read = json.loads(json.dumps(Dashboard.from_json(made), cls=JSONEncoder))
    assert {key: read.get(key) for key in made} == made


@pytest.mark.parametrize(("stack", "name"), EVERY)
def test_panels_have_ids_and_places_of_their_own(models: Models, stack: str, name: str) -> None:
    found = models[stack][name]["panels"]
    assert not [number for number, times in Counter(panel["id"] for panel in found).items() if times > 1]
    taken: dict[tuple[int, int], str] = {}
    for panel in found:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} lies on {taken[x, y]}"
                taken[x, y] = panel["title"]
    lines = max(y for _, y in taken) + 1
    assert {y for _, y in taken} == set(range(lines)), "a line without any panel"


@pytest.mark.parametrize(("stack", "name"), EVERY)
def test_every_panel_with_a_query_says_what_it_is(models: Models, stack: str, name: str) -> None:
    for panel in panels(models[stack][name]):
        if not panel.get("targets"):
            assert panel["type"] in ("text", "alertlist")
            continue
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == [chr(ord("A") + index) for index in range(len(refs))]
        if panel["type"] == "table":
            _check_table(panel)
        else:
            assert panel["fieldConfig"]["defaults"]["unit"]
        if panel["type"] in ("timeseries", "bargauge"):
            assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]


def _check_table(panel: dict[str, Any]) -> None:
    """Every column has a heading and a unit; every override and the sort order name a column."""
    organize = next(step for step in panel["transformations"] if step["id"] == "organize")["options"]
    headings = organize["renameByName"]
    count = len(panel["targets"])
    values = [f"Value #{target['refId']}" for target in panel["targets"]] if count > 1 else ["Value"]
    assert set(values) <= set(headings)
    assert list(organize["indexByName"]) == sorted(organize["indexByName"])  # the JSON has sorted keys
    ranked = sorted(organize["indexByName"], key=organize["indexByName"].__getitem__)
    assert ranked[-count:] == values
    assert len(set(headings.values())) == len(headings)
    overrides = panel["fieldConfig"]["overrides"]
    properties = {
        item["matcher"]["options"]: {entry["id"] for entry in item["properties"]} for item in overrides
    }
    assert set(properties) <= set(headings.values())
    assert all("unit" in properties[headings[value]] for value in values)
    assert panel["options"]["sortBy"][0]["displayName"] in headings.values()


@pytest.mark.parametrize(("stack", "name"), EVERY)
def test_variables_are_those_that_panels_choose_by(models: Models, stack: str, name: str) -> None:
    model = models[stack][name]
    text = json.dumps(model["panels"])
    declared = [variable["name"] for variable in model["templating"]["list"]]
    asked = set(re.findall(r"=~\\\"\$(\w+)", text))
    assert declared[0] == "datasource"
    assert "pool" in declared
    queried = {item for variable in model["templating"]["list"] for item in _named(variable)}
    assert asked <= set(declared) == asked | queried | {"datasource"}


def _named(variable: dict[str, Any]) -> list[str]:
    query = variable.get("query")
    return re.findall(r"\$(\w+)", query["query"]) if isinstance(query, dict) else []


@pytest.mark.parametrize("stack", STACKS)
def test_links_lead_to_dashboards_and_variables_that_are_there(models: Models, stack: str) -> None:
    made = models[stack]
    declared = {
        model["uid"]: {item["name"] for item in model["templating"]["list"]} for model in made.values()
    }
    followed = set()
    for model in made.values():
        assert model["links"][0]["tags"] == ["gpuform"]
        assert "gpuform" in model["tags"]
        for uid, variable in re.findall(r"/d/([\w-]+)\?var-(\w+)=", json.dumps(model)):
            assert variable in declared[uid]
            followed.add((model["uid"], uid))
    assert len(followed) >= 5


@pytest.mark.parametrize("stack", STACKS)
def test_what_is_simulated_says_so_and_nothing_else_does(models: Models, stack: str) -> None:
    simulated = environment(stack).cluster.kind == "embedded"
    for model in models[stack].values():
        text = json.dumps(model)
        assert ("simulator" in text) == simulated
        if simulated:
            assert panels(model)[0]["options"]["content"].startswith("**Simulated.**")


def test_panels_that_could_never_show_anything_are_left_out(models: Models) -> None:
    def titles(stack: str) -> set[str]:
        return {item.panel for item in queries(models[stack])}

    assert "Limits of Karpenter's pools" in titles("aws-prod")
    assert "Limits of Karpenter's pools" not in titles("local")
    assert "Limits of elastic pools" in titles("openstack-dev")
    assert "Limits of elastic pools" not in titles("aws-prod") | titles("local")
    assert "Cost per hour" in titles("local")
    assert "Cost per hour" not in titles("onprem-dev")  # own hosts without prices
    assert "MIG layouts" in titles("local")
    assert "MIG layouts" not in titles("aws-dev")
    assert "NVLink" in titles("aws-prod")
    assert "NVLink" not in titles("local")  # PCIe cards


def test_the_page_lists_every_panel(models: Models) -> None:
    page = (ROOT / "docs/reference/dashboards.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `")}
    assert tuple(rows) == NAMES
    for made in models.values():
        for name, model in made.items():
            assert f"` {model['title']} |" in rows[name]
            for panel in panels(model):
                assert panel["title"].lower() in rows[name].lower(), panel["title"]


def test_alerts_lead_to_their_runbooks_where_these_can_be_read() -> None:
    """Without a base address the path is shown without a link: Grafana would resolve it against itself."""
    env = environment("local")
    base = "https://git.example/gpuform/blob/main/"

    def firing(runbooks: str | None) -> dict[str, Any]:
        monitoring = Monitoring(runbooks=runbooks)
        model = dashboards(env.model_copy(update={"monitoring": monitoring}))["health"]
        return next(panel for panel in panels(model) if panel["title"] == "Firing")

    led = firing(base)
    assert f'"runbook", "{base}docs/runbooks/$1.md", "alertname"' in led["targets"][0]["expr"]
    links = [item for item in led["fieldConfig"]["overrides"] if item["matcher"]["options"] == "Runbook"]
    assert links[0]["properties"][0]["value"] == [{"title": "What to do", "url": "${__value.raw}"}]
    assert '"runbook", "docs/runbooks/$1.md", "alertname"' in firing(None)["targets"][0]["expr"]
    assert "Runbook" not in [
        entry["matcher"]["options"] for entry in firing(None)["fieldConfig"]["overrides"]
    ]
