"""The replacement guard's check: what it accepts, what it refuses, and the messages."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.provider.guards.replacement import INPUTS, ReplacementGuard, implied_region
from gpuform.provider.handler import CheckResult, Engine
from gpuform.provider.own.provider import GpuformProvider
from gpuform.provider.properties import UNKNOWN
from infra.model.base.guard_names import REPORT, VARIABLE
from tests.provider.conftest import Log, call_for

pytestmark = pytest.mark.unit

TOKEN = "gpuform:openstack:ReplacementGuard"
CLUSTER: dict[str, Any] = {
    "what": "the cluster",
    "at": "",
    "fixed": {"name": "research", "cluster.keypair": "admins", "cluster.labels.kube_tag": "v1.30.2"},
    "template": {"cluster.template": "kubernetes-1.30.2-2"},
    "allow": "cluster.allow_replace",
    "allowReplace": False,
    "lost": ["node group gpu-t4 (2 nodes of g2.5xlarge)", "deployment lab/notebook"],
}
LOST = (
    "the cluster would be replaced, which loses: node group gpu-t4 (2 nodes of g2.5xlarge), "
    "deployment lab/notebook"
)
KEYPAIR = 'cluster.keypair: "admins" cannot become "others" in place'
UNSET = "unset cannot become"
REMEDY = "set cluster.allow_replace: true for one run, or undo the change"


def check(
    olds: dict[str, Any], news: dict[str, Any], engine: Engine | None = None, **regions: str
) -> CheckResult:
    """``regions`` are those that the entries of clouds.yaml imply."""
    guard = ReplacementGuard(lambda cloud: regions.get(cloud, ""))
    return asyncio.run(guard.check(call_for(TOKEN, engine), olds, news))


def fixed(**changed: Any) -> dict[str, Any]:
    return {**CLUSTER, "fixed": {**CLUSTER["fixed"], **changed}}


@pytest.mark.parametrize(
    ("news", "fact"),
    [
        (
            {**fixed(**{"cluster.labels.kube_tag": "v1.31.0"}), "lost": []},
            'cluster.labels.kube_tag: "v1.30.2" cannot become "v1.31.0" in place',
        ),
        (fixed(**{"cluster.keypair": "others"}), KEYPAIR),
        (fixed(name="lab"), 'name: "research" cannot become "lab" in place'),
        (fixed(**{"cluster.masters.nodes": 3}), f"cluster.masters.nodes: {UNSET} 3 in place"),
        (
            fixed(**{"cluster.merge_labels": False}),
            "cluster.merge_labels: unset cannot become false in place",
        ),
        (
            {**CLUSTER, "fixed": {"name": "research", "cluster.keypair": "others"}},
            f'{KEYPAIR}, cluster.labels.kube_tag: "v1.30.2" cannot become unset in place',
        ),
    ],
)
def test_a_change_that_takes_a_replacement_is_refused_with_everything_that_would_be_lost(
    news: dict[str, Any], fact: str
) -> None:
    assert check(CLUSTER, news).failures == [("", f"{fact}; {LOST}; {REMEDY}")]


def test_a_replacement_is_acknowledged_by_the_name_of_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The old cluster's, for it may be the name that changes; a pool's. A report is no acknowledgement."""
    pool = {**CLUSTER, "what": "node group t4", "fixed": {"machine": "g2.xlarge"}, "template": None}
    bigger = {**pool, "fixed": {"machine": "g2.5xlarge"}}
    for olds, news, name in ((CLUSTER, fixed(name="lab"), "research"), (pool, bigger, "t4")):
        for others in ("lab", REPORT):
            monkeypatch.setenv(VARIABLE, others)
            assert check(olds, news).failures
        log = Log()
        assert not check(olds, {**news, "acknowledged": [name]}, log).failures
        assert log.lines[0].endswith(f"; acknowledged as {name}")
        monkeypatch.setenv(VARIABLE, name)
        assert not check(olds, news).failures


def test_the_path_begins_where_the_pool_now_stands() -> None:
    pool = {**CLUSTER, "what": "node group t4", "fixed": {"machine": "g2.5xlarge"}, "template": None}
    news = {**pool, "at": "pools[2].", "fixed": {"machine": "g4.p1.40g"}}
    (failure,) = check({**pool, "at": "pools[1]."}, news).failures
    assert failure[1].startswith(
        'pools[2].machine: "g2.5xlarge" cannot become "g4.p1.40g" in place; node group t4 would be replaced'
    )


def test_what_is_allowed_happens_with_a_warning_that_says_what_is_lost() -> None:
    log = Log()
    news = {**fixed(**{"cluster.keypair": "others"}), "allowReplace": True}
    assert check(CLUSTER, news, log).failures == ()
    (text,) = log.lines
    assert text.startswith('cluster.keypair: "admins" cannot become "others" in place; the cluster would be ')
    assert text.endswith("deployment lab/notebook; cluster.allow_replace allows it")


@pytest.mark.parametrize(
    ("olds", "news"),
    [
        ({}, CLUSTER),
        (CLUSTER, CLUSTER),
        (CLUSTER, {**CLUSTER, "lost": ["other"], "at": "pools[3].", "allowReplace": True}),
        (CLUSTER, fixed(**{"cluster.keypair": UNKNOWN})),
        (CLUSTER, {**CLUSTER, "fixed": UNKNOWN}),
    ],
    ids=["the first creation", "nothing", "no fixed value", "a value not known yet", "nothing known yet"],
)
def test_what_changes_no_known_fixed_value_passes(olds: dict[str, Any], news: dict[str, Any]) -> None:
    log = Log()
    assert check(olds, news, log) == CheckResult({k: v for k, v in news.items() if v is not None})
    assert log.lines == []


def test_a_template_counts_only_where_neither_run_had_upgrades() -> None:
    other = {**CLUSTER, "template": {"cluster.template": "kubernetes-1.31.1-1"}}
    (failure,) = check(CLUSTER, other).failures
    assert 'cluster.template: "kubernetes-1.30.2-2" cannot become "kubernetes-1.31.1-1"' in failure[1]
    upgrading = {**CLUSTER, "template": None}
    assert check(CLUSTER, upgrading).failures == ()
    assert check(upgrading, other).failures == ()
    created = {**upgrading, "fixed": {**CLUSTER["fixed"], "cluster.template.server_type": "vm"}}
    # An earlier version created the template, and this one would delete it.
    (failure,) = check(created, upgrading).failures
    assert failure[1].startswith(
        'cluster.template.server_type: "vm" cannot become unset in place; the cluster '
    )


def test_what_is_no_input_and_what_is_missing_is_said() -> None:
    wrong = {key: value for key, value in {**CLUSTER, "fixd": {}}.items() if key != "fixed"}
    assert check({}, wrong).failures == [
        ("fixd", f"is not an input; the inputs are {', '.join(INPUTS)}"),
        ("fixed", "is missing"),
    ]


def test_a_guard_is_never_a_change_and_has_nothing_to_be_found_different() -> None:
    guard, call = GpuformProvider(Engine()).handler(TOKEN), call_for(TOKEN, name="guard-cluster")
    assert not asyncio.run(guard.diff(call, "x", CLUSTER, {}, fixed(name="lab"))).changes
    outputs = {"what": "the cluster"}
    assert asyncio.run(guard.create(call, CLUSTER)) == ("guard-cluster", outputs)
    result = asyncio.run(guard.read(call, "x", fixed(name="lab"), outputs))
    assert result is not None
    assert (result.properties, result.inputs) == (outputs, fixed(name="lab"))


NO_REGION = {**CLUSTER, "cloud": "cern"}
RECORDED = {**NO_REGION, "region": "one"}


def in_region(name: str, **more: Any) -> dict[str, Any]:
    return {**fixed(**{"cluster.region": name}), "cloud": "cern", **more}


@pytest.mark.parametrize(
    ("olds", "news", "clouds", "recorded"),
    [
        pytest.param({}, NO_REGION, {"cern": "one"}, "one", id="the first run writes down what is implied"),
        pytest.param({}, NO_REGION, {}, None, id="not declared"),
        pytest.param(
            NO_REGION, NO_REGION, {"cern": "one"}, "one", id="a state from before this was written down"
        ),
        pytest.param(RECORDED, NO_REGION, {"cern": "two"}, "one", id="the cluster stays where it is"),
        pytest.param(RECORDED, in_region("one"), {}, "one", id="written down as recorded"),
        pytest.param(NO_REGION, in_region("one"), {"cern": "one"}, "one", id="written down as implied"),
        pytest.param(in_region("one", region="one"), NO_REGION, {"cern": "one"}, "one", id="taken out again"),
        pytest.param(in_region("one"), NO_REGION, {}, "one", id="taken out, and nothing implied"),
        pytest.param(
            RECORDED,
            {**NO_REGION, "cloud": "other"},
            {"other": "one"},
            "one",
            id="another way to the same region",
        ),
    ],
)
def test_a_region_that_is_the_same_is_no_replacement(
    olds: dict[str, Any], news: dict[str, Any], clouds: dict[str, str], recorded: str | None
) -> None:
    result = check(olds, news, **clouds)
    assert result.failures == ()
    assert result.inputs.get("region") == recorded


@pytest.mark.parametrize("olds", [RECORDED, NO_REGION], ids=["recorded", "implied"])
def test_another_region_is_refused_with_the_one_that_the_cluster_is_in(olds: dict[str, Any]) -> None:
    (failure,) = check(olds, in_region("two"), cern="one").failures
    assert failure == ("", f'cluster.region: "one" cannot become "two" in place; {LOST}; {REMEDY}')
    allowed = check(olds, {**in_region("two"), "allowReplace": True}, cern="one")
    assert (allowed.failures, allowed.inputs["region"]) == ((), "two")


def test_where_no_region_is_known_the_refusal_says_that_it_may_be_the_same() -> None:
    ((_, reason),) = check(NO_REGION, in_region("one")).failures
    assert reason.startswith('cluster.region: unset cannot become "one" in place; the cluster would be')
    assert reason.endswith("if the credentials imply that region already, leave it out, and nothing changes")


@pytest.mark.parametrize("news", [NO_REGION, {**NO_REGION, "cloud": "other"}], ids=["left out", "cloud"])
def test_credentials_that_lead_to_another_region_are_refused(news: dict[str, Any]) -> None:
    olds = in_region("one") if news is NO_REGION else RECORDED
    ((_, reason),) = check(olds, {**news, "allowReplace": True}, cern="two", other="two").failures
    assert reason == (
        'cluster.region: the cluster is in "one", and without it new node groups would go to "two", '
        'which the credentials imply; write region: "one"'
    )


def test_the_implied_region_is_read_from_clouds_yaml(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    auth = {"auth_url": "https://keystone.example.org/v3", "username": "u", "password": "p"}
    entry = {"region_name": "one", "auth": {**auth, "project_name": "p"}}
    file = tmp_path / "clouds.yaml"
    file.write_text(json.dumps({"clouds": {"cern": entry}}))
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(file))
    monkeypatch.delenv("GPUFORM_OFFLINE", raising=False)
    assert (implied_region("cern"), implied_region("other")) == ("one", "")
    monkeypatch.setenv("GPUFORM_OFFLINE", "1")
    assert implied_region("cern") == "RegionOne"


def test_what_an_allowed_replacement_was_from_may_be_put_back_without_a_loss() -> None:
    """The run may have been killed before it changed the cluster, and the guard does not see its state."""
    others = {**fixed(**{"cluster.keypair": "others"}), "allowReplace": True}
    recorded = check(CLUSTER, others).inputs
    ((_, reason),) = check(recorded, CLUSTER).failures
    assert reason == (
        'cluster.keypair: the replacement of "admins" by "others" was allowed, and may not have taken place; '
        f"if it has, {LOST}; set cluster.allow_replace: true, and the preview shows whether it has; "
        "or restore the last value"
    )
    third = check(recorded, fixed(**{"cluster.keypair": "third"})).failures
    assert third == [("", f'cluster.keypair: "others" cannot become "third" in place; {LOST}; {REMEDY}')]
    both = check(recorded, fixed(name="lab")).failures
    assert both[0][1].startswith(
        'cluster.keypair: the replacement of "admins" by "others" was allowed, and may not have taken place, '
        'name: "research" cannot become "lab" in place; the cluster would be replaced'
    )
    again = check(recorded, {**fixed(**{"cluster.keypair": "third"}), "allowReplace": True}).inputs
    assert again["allowedFrom"] == {"cluster.keypair": ['"admins"', '"others"']}


def test_what_an_allowed_replacement_was_from_is_forgotten_once_nothing_changes() -> None:
    others = fixed(**{"cluster.keypair": "others"})
    recorded = check(CLUSTER, {**others, "allowReplace": True}).inputs
    finished = check(recorded, others).inputs
    (failure,) = check(finished, CLUSTER).failures
    assert failure[1].startswith('cluster.keypair: "others" cannot become "admins" in place')
