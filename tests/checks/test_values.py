"""Every Helm value that is set is known to its chart, for every environment.

A chart knows the keys of its values file. Some charts have this file beside this checkout; charts in Go
modules contain it, and are rendered by helm, too.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from lab.toolchain import Toolchain
from tests.checks import everything
from tests.checks.charts import (
    AT_HAND,
    IN_MODULES,
    OF_THE_DEPENDENCY,
    folder,
    older_operator,
    rendered,
    unknown_keys,
    values_of,
)
from tests.external import reference

pytestmark = pytest.mark.tools

# Charts without an available values file: a person checks their values when a version is raised.
UNSEEN = {"aws-efa-k8s-device-plugin", "cert-manager", "dra-driver-nvidia-gpu", "keda"}
BESIDE = ("gpu-operator", "dcgm-exporter", "kube-prometheus-stack")
"""Charts with only the values file available, beside this checkout."""
OF_A_DEPENDENCY = {
    # Of kube-state-metrics 8.4.0, prometheus-node-exporter 4.56.1, grafana 12.11.1; one is in a comment.
    "kube-prometheus-stack": {
        "kube-state-metrics.collectors",
        "kube-state-metrics.metricLabelsAllowlist",
        "kube-state-metrics.tolerations",
        "prometheus-node-exporter.tolerations",
        "grafana.grafana.ini",
        "grafana.tolerations",
        "alertmanager.alertmanagerSpec.configSecret",
    },
    "gpu-operator": OF_THE_DEPENDENCY,
    "nvidia-device-plugin": {"nfd.gc", "nfd.master.tolerations", "selectorLabelsOverride.app"},
}


def known_values(chart: str) -> Any:
    """Keys of the chart's values file; skips the test if the file is not available."""
    file = (folder(chart) or reference(f"charts/{chart}")) / "values.yaml"
    return yaml.safe_load(file.read_text())


def test_every_chart_is_looked_at() -> None:
    found = {chart["chart"] for name in everything.environments() for chart in everything.charts(name)}
    assert found == {*BESIDE, *AT_HAND} | UNSEEN


@pytest.mark.parametrize("chart", [*BESIDE, *IN_MODULES])
def test_the_chart_knows_every_key(chart: str) -> None:
    known = known_values(chart)
    found = values_of(chart)
    assert found
    for name, values in found:
        assert unknown_keys(values, known) <= OF_A_DEPENDENCY.get(chart, set()), name


@pytest.mark.parametrize(
    ("chart", "path"),
    [
        ("gpu-operator", "devicePlugin.config.nane"),
        ("gpu-operator", "migmanager"),
        ("gpu-operator", "node-feature-discovery.worker.toleration"),
        ("dcgm-exporter", "serviceMonitor.relabeling"),
        ("kube-prometheus-stack", "prometheus.prometheusSpec.retentionsize"),
        ("kube-prometheus-stack", "kubeControllermanager"),
        ("karpenter", "settings.clusterNam"),
        ("karpenter", "settings.featureGates.nodeOverlays"),
    ],
)
def test_a_key_that_no_chart_knows_is_found(chart: str, path: str) -> None:
    values: Any = "x"
    for key in reversed(path.split(".")):
        values = {key: values}
    assert unknown_keys(values, known_values(chart)) == {path}


def test_what_the_older_operator_of_this_machine_ignores() -> None:
    """``--operator real`` runs an older one than that of the stacks; its chart ignores these keys."""
    known = yaml.safe_load((older_operator() / "values.yaml").read_text())
    ignored = {key for _, values in values_of("gpu-operator") for key in unknown_keys(values, known)}
    assert ignored - OF_THE_DEPENDENCY == {
        "cdi.nriPluginEnabled",
        "clusterPolicy",
        "dcgmExporter.serviceMonitor.scrapeTimeout",
        "gpuCluster",
    }


@pytest.mark.parametrize("chart", AT_HAND)
def test_helm_renders_it_with_the_values_of_every_environment(toolchain: Toolchain, chart: str) -> None:
    texts = {yaml.safe_dump(values) for _, values in values_of(chart)}
    for text in texts:
        assert all(item["kind"] for item in rendered(toolchain, chart, yaml.safe_load(text)))


def test_the_controller_gets_what_is_set(toolchain: Toolchain) -> None:
    """The values arrive where Karpenter reads them: a chart may accept a key without using it."""
    values = next(values for name, values in values_of("karpenter") if name == "Pulumi.aws-prod")
    objects = rendered(toolchain, "karpenter", values)
    pod = next(item for item in objects if item["kind"] == "Deployment")["spec"]["template"]["spec"]
    env = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}
    settings = values["settings"]
    assert env["CLUSTER_NAME"] == settings["clusterName"]
    assert env["INTERRUPTION_QUEUE"] == settings["interruptionQueue"]
    gates = dict(gate.split("=") for gate in env["FEATURE_GATES"].split(","))
    assert gates["NodeOverlay"] == str(settings["featureGates"]["nodeOverlay"]).lower()
    assert pod["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}
