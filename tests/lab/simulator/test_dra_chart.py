"""The stand-in chart for NVIDIA's DRA driver: exactly the keys that we set, and the same selectors."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.plan import dra
from lab.toolchain import Toolchain
from tests.plan.aws_environments import TABLE

pytestmark = pytest.mark.unit

CHART = Path(__file__).parents[3] / "charts" / "dra-driver-sim"
GOOD = {"gpuResourcesEnabledOverride": True, "resources": {"computeDomains": {"enabled": False}}}

Helm = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def helm(toolchain: Toolchain, tmp_path: Path) -> Helm:
    if toolchain.locate("helm").path is None:
        pytest.skip("helm is not built; `gpuform local start` builds it")

    def run(values: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump(values))
        command = [toolchain.path("helm"), "template", "d", CHART, "-n", "gpu-operator", "-f", file]
        return subprocess.run(command, capture_output=True, text=True)

    return run


def objects(helm: Helm, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    done = helm(values)
    assert done.returncode == 0, done.stderr
    return {one["metadata"]["name"]: one for one in yaml.safe_load_all(done.stdout) if one}


@pytest.mark.parametrize("name", ["claimed", "claimed slices"])
def test_it_takes_what_is_planned(helm: Helm, name: str) -> None:
    release = dra.release(TABLE[name])
    assert release
    found = objects(helm, release.values)
    assert set(found) == {"gpu.nvidia.com", "mig.nvidia.com", "dra-driver-nvidia-gpu-kubelet-plugin"}
    pod = found["dra-driver-nvidia-gpu-kubelet-plugin"]["spec"]["template"]["spec"]
    planned = release.values["kubeletPlugin"]
    assert (pod["nodeSelector"], pod["tolerations"]) == (planned["nodeSelector"], planned["tolerations"])
    assert "affinity" in pod, "the chart's own where none is planned"


def test_it_waits_for_a_driver_that_a_container_brings(helm: Helm) -> None:
    def after(root: str) -> str | None:
        found = objects(helm, {**GOOD, "nvidiaDriverRoot": root})["dra-driver-nvidia-gpu-kubelet-plugin"]
        notes: dict[str, str] = found["spec"]["template"]["metadata"]["annotations"]
        return notes.get("simulator.gpuform.io/after")

    assert (after("/run/nvidia/driver"), after("/")) == ("driver", None)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "gpuResourcesEnabledOverride is not set"),
        ({"gpuResourcesEnabledOverride": True}, "nothing here stands in for compute domains"),
    ],
)
def test_it_refuses_what_the_real_one_refuses(helm: Helm, values: dict[str, Any], said: str) -> None:
    done = helm(values)
    assert done.returncode
    assert said in done.stderr
