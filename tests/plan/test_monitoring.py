"""Monitoring's release, the exporter's counters, and how it is scraped."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from infra.model.environment import Environment
from infra.model.gpu.dcgm import DEFAULT, FIELDS
from infra.plan import device_plugin, gpu_operator, health, monitoring, scraping
from infra.plan.quotas import namespaces
from infra.plan.render import render
from tests.build.environments import on
from tests.external import reference

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
POOLS = [{"name": "t4", "machine": "g2.5xlarge"}, {"name": "cpu", "machine": "m6i.xlarge"}]
CERN = [f"DCGM_FI_PROF_PIPE_{pipe}_ACTIVE" for pipe in ("TENSOR", "FP64", "FP32", "FP16")]


def existing(monitored: dict[str, Any] | None, **operator: Any) -> Environment:
    return on("existing", *POOLS, gpu_operator=operator, monitoring=monitored)


def values(monitored: dict[str, Any]) -> dict[str, Any]:
    release = monitoring.release(existing(monitored))
    assert release
    return release.values


def objects(monitored: dict[str, Any]) -> list[Any]:
    env = existing(monitored)
    return [*monitoring.rule_objects(env), *monitoring.dashboard_objects(env)]


def test_nothing_of_it_where_it_is_left_out() -> None:
    env = existing(None)
    assert monitoring.release(env) is device_plugin.exporter_release(env) is scraping.config_map(env) is None
    assert monitoring.objects_before(env) == ()
    assert "dcgmExporter" not in gpu_operator.values(env)
    assert not [name for name in render(env) if "monitoring" in name or "dcgm" in name]
    assert "monitoring" not in {namespace["metadata"]["name"] for namespace in namespaces(env)}


@pytest.mark.parametrize(
    ("given", "kept", "size"),
    [
        ({}, "1d", None),
        ({"retention": "12h", "retention_size": "4GB"}, "12h", "4GB"),
        ({"storage": {"size": "100Gi"}}, "15d", "87040MB"),
        ({"storage": {"size": "100Gi"}, "retention_size": "50GB", "retention": "30d"}, "30d", "50GB"),
    ],
)
def test_how_long_and_how_much_is_kept(given: dict[str, Any], kept: str, size: str | None) -> None:
    spec = values(given)["prometheus"]["prometheusSpec"]
    assert (spec["retention"], spec.get("retentionSize")) == (kept, size)
    assert ("storageSpec" in spec) is ("storage" in given)


def test_no_secret_is_in_the_values_but_names_of_some() -> None:
    found = values(
        {
            "remote_write": {"url": "https://other.example/write", "secret": "other"},
            "alertmanager": {"config_secret": "who"},
        }
    )
    (write,) = found["prometheus"]["prometheusSpec"]["remoteWrite"]
    assert write["basicAuth"]["password"] == {"name": "other", "key": "password"}
    assert found["alertmanager"]["alertmanagerSpec"]["configSecret"] == "who"
    assert found["alertmanager"]["alertmanagerSpec"]["useExistingSecret"] is True
    assert "adminPassword" not in json.dumps(found)
    assert found["grafana"]["grafana.ini"]["auth.anonymous"] == {"enabled": False}


def test_without_alerts_there_is_no_receiver() -> None:
    found = values({"alerts": False})
    assert found["alertmanager"] == {"enabled": False}
    assert found["defaultRules"] == {"create": False}


def test_rules_and_dashboards_are_what_others_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    alert = {"alert": "GpuLost", "expr": "up == 0"}
    record = {"record": "gpuform:node:info", "expr": "up"}
    groups = [{"name": "gpuform.nodes", "rules": [record, alert]}, {"name": "Faults", "rules": [alert]}]
    monkeypatch.setattr(monitoring, "groups", lambda env: groups)
    monkeypatch.setattr(monitoring, "texts", lambda env: {"fleet": '{"title": "Ü"}\n'})
    found = {item["metadata"]["name"]: item for item in objects({})}
    assert sorted(found) == ["gpuform-dashboard-fleet", "gpuform-faults", "gpuform-nodes"]
    assert found["gpuform-nodes"]["metadata"]["labels"]["release"] == "monitoring"
    assert found["gpuform-nodes"]["spec"]["groups"] == [groups[0]]
    board = found["gpuform-dashboard-fleet"]
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["gpuform-fleet.json"]) == {"title": "Ü"}
    quiet = objects({"alerts": False, "dashboards": False})
    assert [entry["spec"]["groups"][0]["rules"] for entry in quiet] == [[record]]


def test_every_line_of_the_csv_is_read_as_the_exporter_reads_it() -> None:
    config_map = scraping.config_map(existing({}))
    assert config_map
    assert config_map["metadata"]["namespace"] == "gpu-operator"
    rows = list(csv.reader(config_map["data"]["dcgm-metrics.csv"].splitlines(), skipinitialspace=True))
    assert {len(row) for row in rows} == {3}
    assert {row[1] for row in rows} == {"gauge", "counter", "label"}
    assert len({row[0] for row in rows}) == len(rows) == len(DEFAULT)
    assert {row[0] for row in rows} >= set(CERN)


def test_nothing_that_the_exporter_exports_by_itself_is_lost() -> None:
    """Neither its default list, nor the lines that are commented out there."""
    lines = reference("dcgm/default-counters.csv").read_text().splitlines()
    named = {
        line.lstrip("# ").split(",")[0].strip(): not line.startswith("#") for line in lines if "," in line
    }
    fields = {name: on for name, on in named.items() if name.startswith("DCGM_F")}
    assert {name for name, on in fields.items() if on} <= set(DEFAULT)
    assert set(fields) <= set(FIELDS)


def test_what_is_asked_for_is_added_or_stands_instead() -> None:
    own = [
        "DCGM_FI_DEV_FB_TOTAL",
        {"field": "DCGM_FI_DEV_GPU_TEMP", "help": "How hot it is"},
        {"field": "DCGM_FI_DEV_PSTATE", "type": "counter"},
    ]
    lines = scraping.fields_csv(existing({"counters": own})).splitlines()
    assert len(lines) == len(DEFAULT) + 2
    assert "DCGM_FI_DEV_FB_TOTAL, gauge, Memory of the card in MiB" in lines
    assert "DCGM_FI_DEV_GPU_TEMP, gauge, How hot it is" in lines
    assert "DCGM_FI_DEV_PSTATE, counter, Performance state from 0 (fastest) to 15" in lines


def test_bumble_row_14_additional_scrape_configs() -> None:
    """Scrapes the operator's namespace; the operator's own ServiceMonitor is off."""
    env = existing({"scrape": "scrape_configs"})
    assert gpu_operator.values(env)["dcgmExporter"]["serviceMonitor"] == {"enabled": False}
    release = monitoring.release(env)
    assert release
    (config,) = release.values["prometheus"]["prometheusSpec"]["additionalScrapeConfigs"]
    (discovery,) = config["kubernetes_sd_configs"]
    assert discovery["namespaces"] == {"names": ["gpu-operator"]}
    assert config["job_name"] == scraping.JOB == "nvidia-dcgm-exporter"
    assert config["honor_labels"] is True
    assert {item.get("target_label") for item in config["relabel_configs"]} == {None, "node", "instance"}


@pytest.mark.parametrize(("interval", "asked", "limit"), [("5s", "5000", "5s"), ("1m", "60000", "10s")])
def test_the_exporter_asks_as_often_as_it_is_asked(interval: str, asked: str, limit: str) -> None:
    found = gpu_operator.values(existing({"interval": interval}))["dcgmExporter"]
    assert found["env"] == [{"name": "DCGM_EXPORTER_INTERVAL", "value": asked}]
    monitor = found["serviceMonitor"]
    assert (monitor["interval"], monitor["scrapeTimeout"]) == (interval, limit)


def test_without_an_operator_the_exporter_is_a_release_of_its_own() -> None:
    env = existing({}, mode="device_plugin")
    release = device_plugin.exporter_release(env)
    assert release
    assert (release.chart, release.version) == ("dcgm-exporter", "4.8.3")
    assert release.namespace == "gpu-operator"
    assert release.name != scraping.JOB, "Helm takes over no object of the operator, which has that name"
    assert release.values["serviceMonitor"]["relabelings"][-1] == {
        "action": "replace",
        "replacement": scraping.JOB,
        "targetLabel": "job",
    }
    (volume,) = release.values["extraConfigMapVolumes"]
    config_map = scraping.config_map(env)
    assert config_map
    assert volume["configMap"] == {"name": config_map["metadata"]["name"]}
    (mount,) = release.values["extraVolumeMounts"]
    assert release.values["arguments"] == ["-f", f"{mount['mountPath']}/{scraping.KEY}"]
    assert release.values["nodeSelector"] == {"nvidia.com/gpu": "true"}
    assert release.values["tolerations"][0]["key"] == "nvidia.com/gpu"


def test_the_page_lists_every_field() -> None:
    page = (ROOT / "docs/howto/monitoring.md").read_text()
    lacking = [
        f"| {name} | {field.type} | {'yes' if name in DEFAULT else ''} | {field.help} |"
        for name, field in FIELDS.items()
    ]
    assert [line for line in lacking if line not in page] == []


THEIRS = {"prometheus": {"service": "prometheus-operated.metrics:9090", "labels": {"release": "stack"}}}


class TestPrometheusOfOthers:
    def test_nothing_is_installed_and_objects_have_its_labels(self) -> None:
        env = existing(THEIRS)
        assert monitoring.release(env) is None
        assert "monitoring" not in {namespace["metadata"]["name"] for namespace in namespaces(env)}
        for item in objects(THEIRS):
            assert item["metadata"]["namespace"] == "gpu-operator"
        rules = list(monitoring.rule_objects(env))
        assert {item["metadata"]["labels"]["release"] for item in rules} == {"stack"}
        assert {group["interval"] for item in rules for group in item["spec"]["groups"]} == {"15s"}
        monitor = gpu_operator.values(env)["dcgmExporter"]["serviceMonitor"]
        assert monitor["additionalLabels"] == {"release": "stack"}
        assert health.monitor(env)["metadata"]["labels"]["release"] == "stack"

    def test_exporter_of_another_operator_is_scraped_as_the_stacks_own(self) -> None:
        env = existing(THEIRS, mode="existing")
        (monitor,) = monitoring.monitors(env)
        (endpoint,) = monitor["spec"]["endpoints"]
        own = scraping.service_monitor(env.monitoring) if env.monitoring else {}
        assert {key: own[key] for key in ("honorLabels", "interval", "relabelings", "scrapeTimeout")} == {
            key: value for key, value in endpoint.items() if key != "port"
        }
        assert monitor["metadata"]["namespace"] == "gpuform-platform"
        assert monitor["metadata"]["labels"]["release"] == "stack"

    def test_address_is_what_pods_reach(self) -> None:
        env = existing(THEIRS)
        assert env.monitoring
        assert env.monitoring.address == "http://prometheus-operated.metrics:9090"
        behind = existing({"prometheus": {"url": "https://mimir.example/prometheus"}})
        assert behind.monitoring
        assert behind.monitoring.address == "https://mimir.example/prometheus"
