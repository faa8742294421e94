"""Charts of others, as offline runs have them: what helm is given, and what it makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.errors import Failure
from gpuform.offline import karpenter_crds, prometheus_crds
from gpuform.offline.charts import Charts
from gpuform.offline.helm import replaced
from gpuform.paths import Paths
from gpuform.toolchain import Toolchain
from infra import versions
from infra.config import load
from infra.plan import eks, gpu_operator

pytestmark = pytest.mark.tools

HERE = Paths.here()
REPOSITORY = "https://charts.example.org"


@pytest.fixture
def charts(tmp_path: Path) -> Charts:
    return Charts(HERE.root, HERE.cache, tmp_path / "charts")


def template(made: Path, toolchain: Toolchain, *words: str, values: Any = None) -> list[dict[str, Any]]:
    """``helm template`` as an offline run has it, without any way to the internet."""
    arguments = [str(toolchain.path("helm")), str(HERE.root), str(HERE.cache), str(made)]
    command = [sys.executable, "-P", "-m", "gpuform.offline.helm", *arguments, "template", "it", *words]
    env = {**os.environ, "HTTPS_PROXY": "http://127.0.0.1:9", "GOPROXY": "off"}
    done = subprocess.run(
        [*command, "-f", "-"], input=json.dumps(values or {}), env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


@pytest.mark.parametrize(
    "words",
    [
        ("some-plugin", "--repo", REPOSITORY, "--version", "v0.5.30"),
        ("oci://registry.example.org/charts/some-plugin", "--version=v0.5.30"),
    ],
)
def test_any_chart_holds_its_values(tmp_path: Path, toolchain: Toolchain, words: tuple[str, ...]) -> None:
    (made,) = template(tmp_path, toolchain, *words, values={"a": {"b": [1]}})
    assert made["kind"] == "ConfigMap"
    assert made["metadata"]["name"] == "it-values"
    assert json.loads(made["data"]["values"]) == {"a": {"b": [1]}}


def test_the_operator_is_the_simulated_one_under_the_asked_name(
    tmp_path: Path, charts: Charts, toolchain: Toolchain
) -> None:
    folder = charts.folder("gpu-operator", versions.GPU_OPERATOR)
    described = yaml.safe_load((folder / "Chart.yaml").read_text())
    assert (described["name"], described["version"]) == ("gpu-operator", versions.GPU_OPERATOR)
    values = gpu_operator.values(load(HERE.root / "Pulumi.aws-dev.yaml"))
    words = ("gpu-operator", "--repo", versions.GPU_OPERATOR_REPOSITORY, "--version", versions.GPU_OPERATOR)
    kinds = {
        (one["kind"], one["metadata"]["name"]) for one in template(tmp_path, toolchain, *words, values=values)
    }
    assert ("Deployment", "gpu-operator") in kinds


def test_karpenters_crds_are_its_own(tmp_path: Path, toolchain: Toolchain) -> None:
    release = eks.karpenter_crd_release(load(HERE.root / "Pulumi.aws-dev.yaml"))
    karpenter_crds.chart(HERE.root / karpenter_crds.FOLDER, HERE.cache)  # with the network, if need be
    made = template(tmp_path, toolchain, release.chart, "--version", str(release.version))
    assert {one["kind"] for one in made} == {"CustomResourceDefinition"}
    names = {one["metadata"]["name"] for one in made}
    assert {"nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"} < names


def test_the_same_content_lies_at_the_same_place(charts: Charts) -> None:
    first = charts.folder("some-plugin", "1.0.0")
    assert charts.folder("some-plugin", "1.0.0") == first
    assert charts.folder("some-plugin", "1.0.1") != first
    assert [path.name for path in charts.made.iterdir() if not path.name.startswith(".")].count(
        first.name
    ) == 1


@pytest.mark.parametrize(
    "words",
    [("template", "it", "./charts/own", "-f", "-"), ("list", "-A"), ("uninstall", "it", "--wait")],
)
def test_what_names_no_chart_elsewhere_is_helms(charts: Charts, words: tuple[str, ...]) -> None:
    assert replaced(words, charts) == list(words)


def test_crds_that_cannot_be_had_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module in Go's cache and no proxy: the reason is Go's own, and nothing is left in the cache."""
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    with pytest.raises(Failure, match=r"Karpenter's CRDs: are missing: .*GOPROXY=off"):
        karpenter_crds.chart(HERE.root / karpenter_crds.FOLDER, tmp_path / "cache")
    assert not list((tmp_path / "cache" / "tools").glob("karpenter-crds-*"))


def test_prometheus_operators_crds_are_of_the_kinds_that_are_declared() -> None:
    folder = prometheus_crds.crds(HERE.root / prometheus_crds.FOLDER, HERE.cache)
    files = [file for file in folder.iterdir() if "alertmanagerconfigs" not in file.name]  # `- =` in it
    made = [yaml.safe_load(file.read_text()) for file in files]
    assert {one["kind"] for one in made} == {"CustomResourceDefinition"}
    kinds = {one["spec"]["names"]["kind"] for one in made}
    assert {"Prometheus", "PrometheusRule", "ServiceMonitor", "ScrapeConfig", "Alertmanager"} <= kinds
    assert {one["metadata"]["annotations"]["operator.prometheus.io/version"] for one in made} == {
        versions.PROMETHEUS_OPERATOR_CRDS
    }
