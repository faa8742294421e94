"""Files for a Prometheus without prometheus-operator: what they scrape, and that Prometheus reads them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.model.environment import Environment
from infra.plan import gpu_operator, prometheus_files, scaling
from infra.plan.parts import parts
from lab.toolchain import Toolchain
from tests.build.environments import on
from tests.lab.sidecars.monitoring.site import scrape, target

pytestmark = pytest.mark.unit

OPERATORS = {"PodMonitor", "PrometheusRule", "ServiceMonitor"}
TEAM = {"name": "team", "namespaces": ["team"], "quota": {"p0": 1}}
WORK = {"name": "triton", "namespace": "serving", "kind": "inference", "pool": "p0"}
WORK |= {"scale": {"max": 6, "qps_per_replica": 50}, "service": {"port": 80}}


def environment(namespace: str | None = "metrics", **operator: Any) -> Environment:
    theirs = {"service": "server.metrics:80", "labels": {"a": "b"}, "config_namespace": namespace}
    more = {"monitoring": {"prometheus": theirs}, "health": {}, "queues": {"teams": [TEAM]}}
    return on("existing", {"machine": "g2.5xlarge"}, gpu_operator=operator, workloads=[WORK], **more)


def files(env: Environment) -> dict[str, Any]:
    found = prometheus_files.config_map(env)
    assert found
    return {name: yaml.safe_load(text) for name, text in found["data"].items()}


def jobs(env: Environment) -> dict[str, Any]:
    return {job["job_name"]: job for job in files(env)["scrape.yaml"]["scrape_configs"]}


def kinds(env: Environment) -> set[str]:
    return {item["kind"] for part in parts(env).values() for item in part.manifests}


@pytest.mark.parametrize("mode", ["operator", "device_plugin", "existing"])
def test_one_config_map_stands_for_every_object_of_the_operator(mode: str) -> None:
    env, usual = environment(mode=mode), environment(None, mode=mode)
    assert not OPERATORS & kinds(env)
    assert kinds(usual) >= OPERATORS
    (item,) = parts(env)["monitoring-rules"].manifests
    assert item["metadata"]["namespace"] == "metrics"
    assert item["metadata"]["labels"].items() >= {"a": "b", "gpuform.io/environment": "e"}.items()
    rules = files(env)["rules.yaml"]["groups"]
    assert rules == [group for part in parts(usual)["monitoring-rules"].manifests
                     for group in part["spec"].get("groups", ())]  # fmt: skip
    (discovery,) = jobs(env)["nvidia-dcgm-exporter"]["kubernetes_sd_configs"]
    assert ("namespaces" in discovery) == (mode != "existing"), "their operator's namespace is not known"


def test_nvidias_operator_makes_no_monitor_either() -> None:
    assert gpu_operator.values(environment())["dcgmExporter"]["serviceMonitor"] == {"enabled": False}


META = "__meta_kubernetes_"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
OF_TARGET = {"namespace": "gpu-operator", "pod": "pod-x"}
NAME = "app.kubernetes.io/name"


@pytest.mark.parametrize(
    ("job", "service", "port", "pod", "expected"),
    [
        ("gpuform-health/gpuform-health", {NAME: "gpuform-health"}, "metrics", {}, "http"),
        (
            "gpu-operator/gpuform-kueue",
            {NAME: "kueue", "app.kubernetes.io/component": "metrics-service"},
            "https",
            {},
            "https",
        ),
        ("gpu-operator/gpuform-kube-state-metrics", {NAME: "kube-state-metrics"}, "http", {}, "http"),
        ("serving/triton", {}, "metrics", {NAME: "triton"}, "http"),
    ],
)
def test_each_job_takes_the_port_of_its_own_targets(
    job: str, service: dict[str, str], port: str, pod: dict[str, str], expected: str
) -> None:
    """Of a Pod, its container's port is meant; of a Service, its own."""
    config, kind = jobs(environment())[job], "pod_container" if pod else "endpoint"
    (discovery,) = config["kubernetes_sd_configs"]
    assert discovery["role"] == ("pod" if pod else "endpoints")

    def scraped(**more: str) -> dict[str, str] | None:
        found = target("s", service, pod) | {f"{META}{kind}_port_name": port, "__scheme__": config["scheme"]}
        return scrape(found | {f"{META}{key}": value for key, value in more.items()}, config)

    assert scraped() == {
        "url": f"{expected}://10.0.0.7:9400/metrics",
        "job": job,
        **OF_TARGET,
        "service": "s",
    }
    assert scraped(**{f"{kind}_port_name": "other"}) is None
    assert scraped(pod_phase="Failed") is None
    labelled = "pod" if pod else "service"
    assert scraped(**{f"{labelled}_label_app_kubernetes_io_name": "other"}) is None


def test_keda_asks_for_the_job_that_scrapes_the_workload() -> None:
    env = environment()
    (work,) = env.workloads
    assert 'job="serving/triton"' in scaling.request_rate(env, work)
    assert jobs(env)["serving/triton"]["kubernetes_sd_configs"][0]["namespaces"] == {"names": ["serving"]}


def test_kueue_is_asked_as_the_account_of_prometheus() -> None:
    job = jobs(environment())["gpu-operator/gpuform-kueue"]
    assert job["authorization"] == {"credentials_file": f"{ACCOUNT}/token"}


@pytest.mark.engine
@pytest.mark.parametrize("mode", ["operator", "existing"])
def test_prometheus_reads_them(toolchain: Toolchain, tmp_path: Path, mode: str) -> None:
    found = prometheus_files.config_map(environment(mode=mode))
    assert found
    (tmp_path / "token").touch()
    for name, text in found["data"].items():
        (tmp_path / name).write_text(text.replace(ACCOUNT, str(tmp_path)))
    config = {"rule_files": ["rules.yaml"], "scrape_config_files": ["scrape.yaml"]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command = [toolchain.path("promtool"), "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rules found" in done.stdout
