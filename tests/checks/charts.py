"""Charts that are at hand as a whole, and helm, which renders them with what the environments set."""

from __future__ import annotations

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.toolchain import Toolchain
from gpuform.toolchain.golang import plain_environment
from infra import versions
from tests.checks import everything
from tests.checks.everything import ROOT, Document

OURS = "gpu-operator-sim"
IN_A_MODULE = ("karpenter", "karpenter-crd")


def folder(chart: str) -> Path | None:
    """Where the chart lies: in this repository or in a Go module; None for another one."""
    if chart in IN_A_MODULE:
        return _module() / "charts" / chart
    return ROOT / "charts" / chart if chart == OURS else None


@cache
def _module() -> Path:
    """The Go module of Karpenter's provider for AWS, which has its charts."""
    if shutil.which("go") is None:
        pytest.skip("no Go on PATH, to find the module with Karpenter's charts")
    wanted = f"github.com/aws/karpenter-provider-aws@v{versions.KARPENTER}"
    done = subprocess.run(
        ["go", "mod", "download", "-json", wanted],
        cwd=ROOT / "toolchain/karpenter-crds",
        env=plain_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    said = json.loads(done.stdout or "{}")
    if "Dir" not in said:
        pytest.skip(f"{wanted} is not to be had: {said.get('Error', done.stderr)}")
    return Path(said["Dir"])


def of(chart: str) -> list[tuple[str, Any]]:
    """Values that some environment gives the chart, with the environment's name."""
    everywhere = [(name, one) for name in everything.environments() for one in everything.charts(name)]
    # Simulated nodes get our own chart with the operator's values: those must be good for NVIDIA's, too.
    names = {chart, OURS} if chart == "gpu-operator" else {chart}
    return [(name, one["values"]) for name, one in everywhere if one["chart"] in names]


def rendered(toolchain: Toolchain, chart: str, values: Any, namespace: str = "kube-system") -> list[Document]:
    """Objects of the chart as helm renders it for this Kubernetes; AssertionError with what helm refuses."""
    command = [str(toolchain.path("helm")), "template", "it", str(folder(chart)), "-n", namespace, "-f", "-"]
    text = yaml.safe_dump(values)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]
