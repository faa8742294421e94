"""Third-party charts in offline runs: the release's inputs, and what helm renders."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pulumi.runtime
import pytest
import yaml
from pulumi_kubernetes.helm.v3 import Release

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.engine.files import write
from gpuform.engine.standins import _launch_script
from infra import versions
from infra.config import load
from infra.plan import gpu_operator
from infra.plan.device_plugin import efa_release
from infra.strict_yaml import load_all
from lab.offline import pinned_charts
from lab.offline.charts import Charts
from lab.offline.language import runner
from lab.offline.language.runner import use_local_charts
from lab.plane import monitoring
from lab.plane.layout import Layout
from lab.simulator import device_plugin, keys
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import GPU_OPERATOR
from tests.fakes.recorder import own_loop

pytestmark = pytest.mark.tools

HERE = Paths.here()
REPOSITORY = "https://charts.example.org"


@pytest.fixture
def charts(tmp_path: Path) -> Charts:
    return Charts(HERE.root, HERE.cache, tmp_path / "charts")


def template(folder: Path, toolchain: Toolchain, values: Any = None) -> list[dict[str, Any]]:
    command = [str(toolchain.path("helm")), "template", "it", str(folder), "-f", "-"]
    done = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [item for item in load_all(done.stdout) if item]


def described(folder: Path) -> dict[str, str]:
    metadata = yaml.safe_load((folder / "Chart.yaml").read_text())
    return {key: metadata[key] for key in ("name", "version")}


def found(tmp_path: Path, **inputs: Any) -> dict[str, Any]:
    finder = tmp_path / "find-chart"
    write(finder, _launch_script("lab.offline.charts", HERE.root, HERE.cache, tmp_path / "charts"), 0o755)
    seen: list[dict[str, Any]] = []

    class Mocks(pulumi.runtime.Mocks):
        def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
            if args.typ == "kubernetes:helm.sh/v3:Release":
                seen.append(dict(args.inputs))
            return args.name, dict(args.inputs)

        def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
            return {}

    own_loop()
    pulumi.runtime.set_mocks(Mocks())
    root = pulumi.runtime.get_root_resource()

    @pulumi.runtime.test
    def program() -> None:
        use_local_charts(str(finder))
        parent = pulumi.ComponentResource("a:b:C", "parent")
        Release("it", opts=pulumi.ResourceOptions(parent=parent), **inputs)

    with pytest.MonkeyPatch.context() as patch:  # the root is shared with every later test
        patch.setattr(root, "_transformations", [])
        program()
    return seen[0]


PUBLISHED = {"chart": "some-plugin", "repository_opts": {"repo": REPOSITORY}}


@pytest.mark.parametrize("inputs", [PUBLISHED, {"chart": "oci://registry.example.org/charts/some-plugin"}])
def test_any_chart_of_others_holds_its_values(
    tmp_path: Path, toolchain: Toolchain, inputs: dict[str, Any]
) -> None:
    given = found(tmp_path, version="v0.5.30", **inputs)
    assert given["version"] == "v0.5.30"
    assert "repositoryOpts" not in given
    (made,) = template(Path(given["chart"]), toolchain, values={"a": {"b": [1]}})
    assert (made["kind"], made["metadata"]["name"]) == ("ConfigMap", "it-values")
    assert json.loads(made["data"]["values"]) == {"a": {"b": [1]}}


def test_a_chart_of_ones_own_stays(tmp_path: Path) -> None:
    assert found(tmp_path, chart="../charts/own")["chart"] == "../charts/own"


def test_a_chart_that_cannot_be_made_ends_the_program(tmp_path: Path) -> None:
    (tmp_path / "charts").write_text("")
    with pytest.raises(pulumi.RunError, match=r"chart oci://r/it: no stand-in for it: .*File exists"):
        found(tmp_path, chart="oci://r/it", version="1.0.0")


def test_the_operator_is_the_simulated_one_under_the_asked_name(charts: Charts, toolchain: Toolchain) -> None:
    folder = charts.folder("gpu-operator", versions.GPU_OPERATOR)
    assert described(folder) == {"name": "gpu-operator", "version": versions.GPU_OPERATOR}
    values = gpu_operator.values(load(HERE.root / "Pulumi.aws-dev.yaml"))
    kinds = {(item["kind"], item["metadata"]["name"]) for item in template(folder, toolchain, values=values)}
    assert ("Deployment", "gpu-operator") in kinds


def test_the_simulated_plugin_runs_on_the_nodes_that_the_values_name(
    charts: Charts, toolchain: Toolchain
) -> None:
    release = efa_release(load(HERE.root / "Pulumi.aws-prod.yaml"))
    assert release
    folder = charts.folder(release.chart, str(release.version))
    (made,) = template(folder, toolchain, values=release.values)
    pod = made["spec"]["template"]
    assert pod["metadata"]["labels"][keys.PART_OF] in keys.CHARTS
    assert pod["metadata"]["labels"][keys.OPERAND] == device_plugin.EFA_PLUGIN
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    pools = {"key": "gpuform.io/pool", "operator": "In", "values": ["a100-mig", "h100-training"]}
    assert required["nodeSelectorTerms"] == [{"matchExpressions": [pools]}]
    assert pod["spec"]["tolerations"] == release.values["tolerations"]


def test_another_version_lies_at_the_same_place(charts: Charts) -> None:
    first = charts.folder("some-plugin", "1.0.0")
    assert charts.folder("some-plugin", "1.0.1") == first
    assert described(first)["version"] == "1.0.1"
    before = (first / "Chart.yaml").stat()
    assert charts.folder("some-plugin", "1.0.1") == first
    assert (first / "Chart.yaml").stat() == before


def test_crds_that_cannot_be_had_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No module in Go's cache and no proxy: Go's own message is shown, and the cache stays empty."""
    monkeypatch.setenv("GOPROXY", "off")
    monkeypatch.setenv("GOMODCACHE", str(tmp_path / "modules"))
    with pytest.raises(Failure, match=r"Karpenter's CRDs: are missing: .*toolchain not available.*GOPROXY"):
        pinned_charts.crds_chart(HERE.root / pinned_charts.FOLDER, tmp_path / "cache")
    assert not list((tmp_path / "cache" / "tools").glob("karpenter-crds-*"))


def test_prometheus_operators_crds_are_of_the_kinds_that_are_declared() -> None:
    folder = monitoring.crd_folder(HERE.root / monitoring.CRDS, HERE.cache)
    files = [file for file in folder.iterdir() if "alertmanagerconfigs" not in file.name]  # it contains `- =`
    made = [yaml.safe_load(file.read_text()) for file in files]
    assert {item["kind"] for item in made} == {"CustomResourceDefinition"}
    kinds = {item["spec"]["names"]["kind"] for item in made}
    assert {"Prometheus", "PrometheusRule", "ServiceMonitor", "ScrapeConfig", "Alertmanager"} <= kinds
    assert {item["metadata"]["annotations"]["operator.prometheus.io/version"] for item in made} == {
        versions.PROMETHEUS_OPERATOR_CRDS
    }


@pytest.fixture
def operator(tmp_path: Path) -> Path:
    """The link to a built program, next to NFD's, as `Layout.operator`; each has a small chart."""
    links = tmp_path / "plane" / "embedded" / "controllers" / "bin"
    for name, version, dependencies in (
        ("gpu-operator", "v1.0.0-devel", [{"name": "node-feature-discovery", "version": "v0.17.3"}]),
        ("nfd-master", "0.2.1", []),
    ):
        metadata = {"apiVersion": "v2", "name": name, "version": version, "dependencies": dependencies}
        chart = tmp_path / f"{name}-1" / "chart"
        (chart / "charts" / "node-feature-discovery").mkdir(parents=True)
        (chart / "charts" / "node-feature-discovery" / "old.yaml").write_text("")
        (chart / "Chart.yaml").write_text(yaml.safe_dump(metadata))
        values = {"daemonsets": {"labels": {}, "annotations": {}}, "nfd": {"enabled": True}}
        (chart / "values.yaml").write_text(yaml.safe_dump(values))
        (chart.parent / name).touch()
        links.mkdir(parents=True, exist_ok=True)
        (links / name).symlink_to(chart.parent / name)
    return links / "gpu-operator"


def test_nvidias_own_chart_where_its_operator_runs(
    operator: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a published chart, and for ours, which an embedded stack names."""
    simulated = {"chart": str(HERE.root / "charts" / "gpu-operator-sim")}
    published = {"chart": "gpu-operator", "repository_opts": {"repo": REPOSITORY}, "version": "v26.3.3"}
    assert found(tmp_path, **simulated)["chart"] == simulated["chart"], "no program runs"
    monkeypatch.setenv("GPUFORM_KUBECONFIG", str(tmp_path / "plane" / "kubeconfig"))
    assert Layout(Paths(HERE.root, tmp_path / "plane", HERE.cache)).operator == operator
    folder = Path(found(tmp_path, **simulated)["chart"])
    assert described(folder)["version"] == versions.GPU_OPERATOR
    assert Path(found(tmp_path, **published)["chart"]) == folder
    assert described(folder)["version"] == "v26.3.3"


def test_the_chart_of_nfd_is_that_of_its_program_and_operands_wait(operator: Path) -> None:
    files = pinned_charts.operator_files(operator, "")
    metadata = yaml.safe_load(files["Chart.yaml"])
    assert metadata["appVersion"] == f"v{GPU_OPERATOR.tool_version}"
    assert metadata["dependencies"][0]["version"] == "0.2.1", "or helm does not pass it its values"
    assert yaml.safe_load(files["values.yaml"])["daemonsets"]["annotations"] == {keys.START: "waits"}
    nfd = "charts/node-feature-discovery"
    assert f"{nfd}/old.yaml" not in files
    assert yaml.safe_load(files[f"{nfd}/Chart.yaml"])["name"] == "nfd-master"
    operator.with_name("nfd-master").unlink()
    kept = pinned_charts.operator_files(operator, "")
    assert f"{nfd}/old.yaml" in kept, "an official image has no chart: the operator's brings the right one"


@pytest.mark.unit
def test_the_runner_imports_nothing_that_a_programs_interpreter_may_lack() -> None:
    nodes = list(ast.walk(ast.parse(Path(runner.__file__).read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == {"pulumi"}
