from __future__ import annotations

from typing import Any

import pytest

from infra.plan import monitoring
from tests.components.recording import Recorder, record

pytestmark = pytest.mark.unit

ENV: dict[str, Any] = {
    "name": "there",
    "cluster": {"kind": "existing", "kubeconfig": "/k"},
    "pools": [{"name": "t4", "machine": "g2.5xlarge", "selector": {"gpu": "t4"}}],
    "monitoring": {},
}
ALONE = {**ENV, "gpu_operator": {"mode": "device_plugin"}}
RELEASE = "kubernetes:helm.sh/v3:Release"
RULES = "kubernetes:monitoring.coreos.com/v1:PrometheusRule"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    group = {"name": "one", "rules": [{"record": "a:b", "expr": "up"}]}
    monkeypatch.setattr(monitoring, "groups", lambda env: [group])
    monkeypatch.setattr(monitoring, "dashboards", lambda env: {"fleet": {"title": "Fleet"}})


def release(recorded: Recorder, name: str) -> Any:
    (found,) = [one for one in recorded.of(RELEASE) if one.inputs["name"] == name]
    return found


@pytest.mark.parametrize("env", [ENV, ALONE], ids=["operator", "device plugin"])
def test_preview_and_up_register_the_same_resources(env: dict[str, Any]) -> None:
    there, then = record(env, preview=True), record(env)
    assert there.registered() == then.registered()


def test_the_kinds_come_before_what_is_of_them_and_go_after_it() -> None:
    recorded = record(ENV)
    stack = f"{RELEASE} monitoring-release"
    assert stack in release(recorded, "gpu-operator").after
    (rules,) = recorded.of(RULES)
    assert stack in rules.after
    assert rules.inputs["spec"]["groups"][0]["name"] == "one"
    (board,) = [one for one in recorded.of(CONFIG_MAP) if "dashboard" in one.name]
    assert stack in board.after


def test_the_exporter_finds_its_counters_and_pods_find_nodes() -> None:
    recorded = record(ENV)
    assert f"{CONFIG_MAP} monitoring-counters" in release(recorded, "gpu-operator").after
    after = release(recorded, "monitoring").after
    assert "kubernetes:core/v1:Namespace namespaces-monitoring" in after
    assert any(name.endswith(" pools-t4") for name in after)


def test_without_an_operator_the_exporter_waits_for_counters_and_kinds() -> None:
    recorded = record(ALONE)
    after = release(recorded, "nvidia-dcgm-exporter").after
    assert {f"{CONFIG_MAP} monitoring-counters", f"{RELEASE} monitoring-release"} <= after
    assert f"{RELEASE} device-plugin-release" in after


def test_the_resource_name_of_the_counters_stays_when_the_object_is_another() -> None:
    other = record({**ENV, "monitoring": {"counters": ["DCGM_FI_DEV_PSTATE"]}})
    (before,), (after,) = (
        [one for one in of.of(CONFIG_MAP) if one.name == "monitoring-counters"] for of in (record(ENV), other)
    )
    assert before.inputs["metadata"]["name"] != after.inputs["metadata"]["name"]


def test_nothing_of_it_where_nothing_is_declared() -> None:
    plain = {key: value for key, value in ENV.items() if key != "monitoring"}
    names = {one.name for one in record(plain).resources}
    assert not [name for name in names if name.startswith(("monitoring", "dcgm"))]


def test_a_dashboard_changes_in_place() -> None:
    """Replaced, as the provider does by default, it would disappear from Grafana meanwhile."""
    assert record(ENV).one("pulumi:providers:kubernetes").inputs["enableConfigMapMutable"] == "true"
