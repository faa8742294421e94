"""The charts of the simulated operator and DRA driver: NVIDIA's keys and selectors, no others."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.strict_yaml import load_all
from lab.simulator import real_operator
from lab.toolchain import Toolchain
from tests.external import reference

pytestmark = pytest.mark.tools

CHARTS = Path(__file__).parents[3] / "charts"
CHART = CHARTS / "gpu-operator-sim"
# NFD is a subchart of NVIDIA's; these keys are in its values, not in the outer file.
SUBCHART = {("node-feature-discovery", role, "tolerations") for role in ("master", "gc")}

Render = Callable[..., list[dict[str, Any]]]
Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def helm(toolchain: Toolchain, tmp_path: Path) -> Helm:
    if toolchain.locate("helm").path is None:
        pytest.skip("helm is not built; `gpuform local start` builds it")

    def run(values: dict[str, Any], name: str = "gpu-operator", chart: Path = CHART) -> Any:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        command = [str(toolchain.path("helm")), "template", name, str(chart), "-n", name, "-f", str(file)]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def documents(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [document for document in load_all(done.stdout) if document]


@pytest.fixture
def render(helm: Helm) -> Render:
    return lambda **values: documents(helm(values))


def daemonsets(result: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {d["metadata"]["name"]: d["spec"]["template"] for d in result if d["kind"] == "DaemonSet"}


def leaves(values: dict[str, Any], *above: str) -> Iterator[tuple[str, ...]]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, *above, key)
        else:
            yield (*above, key)


# Defaults that NVIDIA's file gives in a comment.
IN_A_COMMENT = {("validator", "version"), ("dcgmExporter", "config", "name")}
# Operands that v26.7.1 has raised [its release notes]; the reference is of v26.7.0.
RAISED = {(operand, "version") for operand in ("toolkit", "devicePlugin", "gfd", "migManager")}


def test_every_key_is_one_of_nvidias_with_its_default() -> None:
    ours = yaml.safe_load((CHART / "values.yaml").read_text())
    theirs = yaml.safe_load(reference("charts/gpu-operator/values.yaml").read_text())
    for path in set(leaves(ours)) - SUBCHART - IN_A_COMMENT:
        left, right = ours, theirs
        for key in path:
            assert key in right, path
            left, right = left[key], right[key]
        assert left == right or path in RAISED, path


def test_every_operand_tolerates_the_taint_of_cern(render: Render) -> None:
    toleration = {"key": "node-role.kubernetes.io/gpu", "operator": "Exists", "effect": "NoSchedule"}
    given = {"tolerations": [toleration]}
    result = daemonsets(render(daemonsets=given, **{"node-feature-discovery": {"worker": given}}))
    assert len(result) == 9
    assert all(template["spec"]["tolerations"] == [toleration] for template in result.values())


@pytest.mark.parametrize(("strategy", "expected"), [("mixed", ["mixed"]), ("", [])])
def test_strategy_is_set_only_when_there_is_one(render: Render, strategy: str, expected: list[str]) -> None:
    plugin = daemonsets(render(mig={"strategy": strategy}))["nvidia-device-plugin-daemonset"]["spec"]
    env = plugin["containers"][0]["env"]
    assert [item["value"] for item in env if item["name"] == "MIG_STRATEGY"] == expected


def waits_for(template: Any) -> set[str]:
    containers = template["spec"]["initContainers"]
    return set(real_operator.waits_for(tuple((item["name"], item["image"]) for item in containers)))


def test_bumble_driver_on_the_hosts(render: Render) -> None:
    result = daemonsets(render(driver={"enabled": False}))
    assert "nvidia-driver-daemonset" not in result
    assert waits_for(result["nvidia-container-toolkit-daemonset"]) == {"driver"}
    assert waits_for(result["nvidia-device-plugin-daemonset"]) == {"validator"}
    assert waits_for(result["nvidia-operator-validator"]) == {"driver", "toolkit", "device-plugin"}
    result = daemonsets(render(devicePlugin={"enabled": False}))
    assert waits_for(result["nvidia-operator-validator"]) == {"driver", "toolkit"}


def test_every_object_says_that_it_is_simulated(render: Render) -> None:
    for document in render():
        labels = document["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "gpu-operator-sim"
        template = document.get("spec", {}).get("template")  # a Service and a ClusterRole have none
        for container in template["spec"]["containers"] if template else ():
            assert container["image"].startswith("simulated.gpuform.io/")


def test_mps_runs_where_it_is_declared_and_mounts_its_memory_first(render: Render) -> None:
    spec = daemonsets(render())["nvidia-device-plugin-mps-control-daemon"]["spec"]
    selected = ("nvidia.com/gpu.deploy.device-plugin", "nvidia.com/mps.capable")
    assert spec["nodeSelector"] == dict.fromkeys(selected, "true")
    assert [c["name"] for c in spec["initContainers"]] == ["toolkit-validation", "mps-control-daemon-mounts"]


def test_a_release_waits_for_no_discovery(render: Render) -> None:
    """GFD exits on a node with MPS until its slices are gone, which is after the release."""
    [gfd] = [one["spec"] for one in render() if one["metadata"]["name"] == "gpu-feature-discovery"]
    assert gfd["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": "100%"}


def test_a_second_release_collides_as_one_of_nvidias_does(helm: Helm) -> None:
    """NVIDIA's ClusterRole, ClusterRoleBinding and ClusterPolicy have fixed names.

    The RuntimeClasses are the operator's, which adopts those that exist.
    """

    def cluster_wide(name: str, cdi: bool) -> set[tuple[str, str]]:
        found = documents(helm({"cdi": {"enabled": cdi}}, name))
        every = [(item["kind"], item["metadata"]) for item in found]
        return {(kind, meta["name"]) for kind, meta in every if "namespace" not in meta}

    fixed = {("ClusterRole", "gpu-operator"), ("RuntimeClass", "nvidia")}
    assert cluster_wide("gpu-operator", False) == cluster_wide("nvidia-gpu-operator", False) == fixed
    of_cdi = {("RuntimeClass", f"nvidia-{mode}") for mode in ("cdi", "legacy")}
    assert cluster_wide("gpu-operator", True) == fixed | of_cdi


DRA_CHART = CHARTS / "dra-driver-sim"
GOOD = {"gpuResourcesEnabledOverride": True, "resources": {"computeDomains": {"enabled": False}}}


def test_the_dra_driver_waits_for_a_driver_that_a_container_brings(helm: Helm) -> None:
    def after(root: str) -> str | None:
        found = daemonsets(documents(helm({**GOOD, "nvidiaDriverRoot": root}, chart=DRA_CHART)))
        notes: dict[str, str] = found["dra-driver-nvidia-gpu-kubelet-plugin"]["metadata"]["annotations"]
        return notes.get("simulator.gpuform.io/after")

    assert (after("/run/nvidia/driver"), after("/")) == ("driver", None)


def test_the_dra_drivers_chart_refuses_what_the_real_one_does(helm: Helm) -> None:
    unset, domains = "gpuResourcesEnabledOverride is not set", "nothing here stands in for compute domains"
    for values, message in (({}, unset), ({"gpuResourcesEnabledOverride": True}, domains)):
        done = helm(values, chart=DRA_CHART)
        assert done.returncode
        assert message in done.stderr
