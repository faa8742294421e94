"""A chart with CRDs that is older than the installed one is refused before anything changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.engine.files import EngineFiles
from gpuform.engine.pending import RELEASE
from gpuform.stack.preflight import check_charts
from gpuform.stack.preflight.check import Finding
from infra import versions
from infra.config import parse
from tests.build.aws_stacks import small
from tests.config.tables import SERVED

pytestmark = pytest.mark.unit

GPUS: dict[str, Any] = {"name": "t4", "machine": "g2.5xlarge", "selector": {"a": "b"}}
EXISTING = {"kind": "existing", "kubeconfig": "/nowhere"}
STATE = {"backend": "s3://bucket/gpu?region=us-west-2"}
ELASTIC = {"name": "g4dn", "machine": "g4dn.xlarge", "elastic": {"max": {"cpu": 96}}}


def release(chart: str, version: str | None) -> dict[str, Any]:
    return {"type": RELEASE, "inputs": {"chart": chart, **({"version": version} if version else {})}}


def findings_of(tmp_path: Path, *releases: dict[str, Any], **own: Any) -> list[Finding]:
    paths = Paths(tmp_path, tmp_path / "state", tmp_path / "cache")
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    file = EngineFiles(paths).checkpoint("gpuform", "s")
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"version": 3, "checkpoint": {"latest": {"resources": list(releases)}}}))
    declared = {"name": "e", "cluster": EXISTING, "pools": [GPUS], **own}
    (tmp_path / "Pulumi.s.yaml").write_text(json.dumps({"config": {"gpuform:environment": declared}}))
    return list(check_charts(parse(declared), paths, "s"))


@pytest.mark.parametrize(
    ("there", "older"),
    [
        ([], ""),
        ([release("gpu-operator", versions.GPU_OPERATOR)], ""),
        ([release("gpu-operator", "v26.3.9")], ""),
        ([release("gpu-operator", "v9.9.9")], ""),
        ([release("gpu-operator", "v26.10.0")],
         f"gpu-operator {versions.GPU_OPERATOR} is older than v26.10.0"),
        ([release("charts/gpu-operator-sim", None), release("karpenter-crd", "99.0.0")], ""),
    ],
)  # fmt: skip
def test_gpu_operator_chart_older_than_the_installed_one_fails(
    tmp_path: Path, there: list[dict[str, Any]], older: str
) -> None:
    (one,) = findings_of(tmp_path, *there)
    assert one.verdict == ("FAIL" if older else "PASS")
    assert one.fact.startswith(older or "none is older")
    assert bool(one.fix) == bool(older)


def test_an_older_version_that_the_file_names(tmp_path: Path) -> None:
    (one,) = findings_of(tmp_path, release("gpu-operator", "v26.7.0"), gpu_operator={"version": "v26.3.2"})
    assert one.fact.startswith("gpu-operator v26.3.2 is older than v26.7.0: older CRDs remove fields")


@pytest.mark.parametrize("chart", ["karpenter-crd", "kube-prometheus-stack"])
def test_other_charts_with_crds_older_than_installed_fail(tmp_path: Path, chart: str) -> None:
    there = release(f"oci://registry.example.com/charts/{chart}", "99.0.0")
    (one,) = findings_of(tmp_path, there, cluster=small()["cluster"], pools=[ELASTIC], monitoring={})
    assert (one.verdict, one.fact.split()[0]) == ("FAIL", chart)


@pytest.mark.parametrize("chart", ["kueue", "keda", "cert-manager", "kserve-crd"])
def test_the_charts_of_queues_and_models_have_crds_too(tmp_path: Path, chart: str) -> None:
    queues = {"teams": [{"name": "science", "namespaces": ["science"], "quota": {"t4": 1}}]}
    declared = {**SERVED, "cluster": EXISTING, "queues": queues}
    (one,) = findings_of(tmp_path, release(chart, "99.0.0"), **declared)
    assert (one.verdict, one.fact.split()[0]) == ("FAIL", chart)


def test_a_state_elsewhere_is_not_compared(tmp_path: Path) -> None:
    (one,) = findings_of(tmp_path, release("gpu-operator", "v99.0.0"), state=STATE)
    assert (one.verdict, one.fact) == ("SKIP", "not checked: the stack's state is elsewhere")
