"""The dashboards' JSON: what Grafana needs, and what a reader needs of each panel."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from infra.model.platform.monitoring import Monitoring
from infra.plan.dashboards import NAMES, dashboards
from tests.plan.dashboards.reading import ROOT, STACKS, environment, panels, queries
from tests.plan.same_bytes import outputs

pytestmark = pytest.mark.unit

GOLDEN = Path(__file__).with_name("golden.txt")
EVERY = [(stack, name) for stack in STACKS for name in NAMES]
Model = dict[str, Any]
Models = dict[str, dict[str, Model]]


@pytest.fixture(scope="module")
def models() -> Models:
    return {stack: dashboards(environment(stack)) for stack in STACKS}


def test_dashboards_are_what_was_reviewed(models: Models) -> None:
    """SHA-256 of each. GPUFORM_UPDATE_GOLDEN=1 writes the file again: review infra/plan/dashboards first."""
    texts = {name: json.dumps(model, sort_keys=True).encode() for name, model in models["local"].items()}
    made = "".join(f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in texts.items())
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        GOLDEN.write_text(made, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == made


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


@pytest.fixture(params=EVERY, ids="-".join)
def model(models: Models, request: pytest.FixtureRequest) -> Model:
    stack, name = request.param
    return models[stack][name]


def test_panels_have_ids_and_places_of_their_own(model: Model) -> None:
    numbers = [panel["id"] for panel in model["panels"]]
    assert len(set(numbers)) == len(numbers)
    places = [panel["gridPos"] for panel in model["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    cells = Counter(
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    )
    assert set(cells.values()) == {1}, "panels lie on each other"
    lines = {y for _, y in cells}
    assert lines == set(range(len(lines))), "a line without any panel"


def test_every_panel_with_a_query_says_what_it_is(model: Model) -> None:
    for panel in panels(model):
        if not panel.get("targets"):
            assert panel["type"] in ("text", "alertlist")
            continue
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        if panel["type"] == "table":
            _check_table(panel)
        else:
            assert panel["fieldConfig"]["defaults"]["unit"]
        if panel["type"] in ("timeseries", "bargauge"):
            assert all(target["legendFormat"] for target in panel["targets"]), panel["title"]


def _check_table(panel: Model) -> None:
    """Every column has a heading and a unit; every override and the sort order name a column."""
    organize = next(step for step in panel["transformations"] if step["id"] == "organize")["options"]
    headings, refs = organize["renameByName"], [target["refId"] for target in panel["targets"]]
    values = [f"Value #{ref}" for ref in refs] if len(refs) > 1 else ["Value"]
    ranked = sorted(organize["indexByName"], key=organize["indexByName"].__getitem__)
    assert ranked[-len(refs) :] == values
    assert len(set(headings.values())) == len(headings)
    looks = {
        item["matcher"]["options"]: {entry["id"] for entry in item["properties"]}
        for item in panel["fieldConfig"]["overrides"]
    }
    assert {*looks, panel["options"]["sortBy"][0]["displayName"]} <= set(headings.values())
    assert all("unit" in looks[headings[value]] for value in values)


def test_variables_are_those_that_panels_choose_by(model: Model) -> None:
    variables = model["templating"]["list"]
    declared = [variable["name"] for variable in variables]
    assert (declared[0], "pool" in declared) == ("datasource", True)
    asked = set(re.findall(r"=~\\\"\$(\w+)", json.dumps(model["panels"])))
    queried = set(re.findall(r"\$(\w+)", "".join(item["query"]["query"] for item in variables[1:])))
    assert asked <= set(declared) == asked | queried | {"datasource"}


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


SHOWN_ON = {
    "Limits of Karpenter's pools": ("aws-prod", "local"),
    "Limits of elastic pools": ("openstack-dev", "aws-prod local"),
    "Cost per hour": ("local", "onprem-dev"),  # own hosts without prices
    "MIG layouts": ("local", "aws-dev"),
    "NVLink": ("aws-prod", "local"),  # PCIe cards
}


@pytest.mark.parametrize(("title", "shown", "left_out"), [(key, *stacks) for key, stacks in SHOWN_ON.items()])
def test_panels_that_could_never_show_anything_are_left_out(
    models: Models, title: str, shown: str, left_out: str
) -> None:
    on = {stack for stack in STACKS if title in {item.panel for item in queries(models[stack])}}
    assert shown in on
    assert not on & set(left_out.split())


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
    assert "Runbook" not in [item["matcher"]["options"] for item in firing(None)["fieldConfig"]["overrides"]]
