"""Charts that are available as a whole, and helm, which renders them with the environments' values."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from infra.strict_yaml import load_all
from lab.offline import pinned_charts
from lab.sidecars.controllers.rows import CHARTS
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import GPU_OPERATOR, NVIDIA_CONFIG
from lab.toolchain.module_files import Source
from tests import external
from tests.checks import everything
from tests.checks.everything import ROOT, Document

OURS: Mapping[str, str] = {
    "gpu-operator-sim": "gpu-operator",
    "device-plugin-sim": "nvidia-device-plugin",
    "dcgm-exporter-sim": "dcgm-exporter",
    "dra-driver-sim": "dra-driver-nvidia-gpu",
    "kube-prometheus-stack-sim": "kube-prometheus-stack",
}
"""Our own charts for simulated nodes, each with the published chart that has the same values."""
_DEVICE_PLUGIN = "deployments/helm/nvidia-device-plugin"
# Charts in Go modules, each with the folder that pins the module. The device plugin's is older than the
# installed one.
IN_MODULES: Mapping[str, tuple[Source, str]] = {
    name: (Source(f"chart-{name}", f"the chart {name}", module, Path(folder), "Chart.yaml"), pinned)
    for name, module, folder, pinned in (
        ("karpenter", pinned_charts.MODULE, "charts/karpenter", "karpenter-crds"),
        ("karpenter-crd", pinned_charts.MODULE, "charts/karpenter-crd", "karpenter-crds"),
        *((name, row.module, row.charts[name], row.name) for name, row in CHARTS.items()),
        ("nvidia-device-plugin", NVIDIA_CONFIG.module_path, _DEVICE_PLUGIN, NVIDIA_CONFIG.name),
    )
}
AT_HAND = (*OURS, *IN_MODULES)


def folder(chart: str) -> Path | None:
    """Folder of the chart: in this repository or in a Go module; None for other charts."""
    if chart in IN_MODULES:
        return external.module(*IN_MODULES[chart])
    return ROOT / "charts" / chart if chart in OURS else None


def older_operator() -> Path:
    """Folder of the chart of the operator that ``--operator real`` runs."""
    where = GPU_OPERATOR.module_path, Path("deployments/gpu-operator"), "Chart.yaml"
    return external.module(Source("chart-gpu-operator", "the chart", *where), GPU_OPERATOR.name)


def values_of(chart: str) -> list[tuple[str, Any]]:
    """Values that some environment gives the chart, with the environment's name.

    Values of our own chart count for NVIDIA's as well: they must be valid for both.
    """
    everywhere = [(name, item) for name in everything.environments() for item in everything.charts(name)]
    return [
        (name, entry["values"])
        for name, entry in everywhere
        if chart in (entry["chart"], OURS.get(entry["chart"]))
    ]


def rendered(toolchain: Toolchain, chart: str, values: Any, namespace: str = "kube-system") -> list[Document]:
    """The chart's objects, rendered by helm for this Kubernetes; AssertionError with helm's error message."""
    command = [str(toolchain.path("helm")), "template", "it", str(folder(chart)), "-n", namespace, "-f", "-"]
    command += ["--api-versions", "monitoring.coreos.com/v1/ServiceMonitor"]
    text = yaml.safe_dump(values)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [item for item in load_all(done.stdout) if item]


def crds_in(toolchain: Toolchain, chart: str = "kueue") -> list[Document]:
    return [item for item in rendered(toolchain, chart, {}) if item["kind"] == "CustomResourceDefinition"]


# The chart's own values lack the first two, which its dependency node-feature-discovery 0.19.0 takes; the
# third is in a comment there.
OF_THE_DEPENDENCY = {
    "node-feature-discovery.gc.tolerations",
    "node-feature-discovery.master.tolerations",
    "dcgmExporter.config",
}


def unknown_keys(values: Any, known: Any, path: str = "") -> set[str]:
    """Our keys that the chart's values file lacks; an empty block there accepts any key."""
    if not isinstance(values, dict) or not isinstance(known, dict) or not known:
        return set()
    found = {f"{path}{key}" for key in values if key not in known}
    for key in values:
        found |= unknown_keys(values[key], known.get(key), f"{path}{key}.")
    return found
