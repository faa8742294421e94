"""What the gate's program makes of a node and its pods; nothing here asks a server."""

from __future__ import annotations

import ast
import datetime
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.incluster import readiness_gate as gate

pytestmark = pytest.mark.unit

BORN, BEFORE = "2026-11-21T11:00:00Z", "2026-11-21T10:59:59Z"
OPERANDS = ["nvidia-device-plugin-daemonset", "nvidia-operator-validator"]
OURS = {"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}
FOREIGN = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def node(offers: object = '{"nvidia.com/gpu.shared": 4}', **allocatable: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "n",
            "creationTimestamp": BORN,
            "labels": {},
            "annotations": {"gpuform.io/offers": offers},
        },
        "spec": {"taints": [FOREIGN, OURS]},
        "status": {
            "allocatable": {
                f"nvidia.com/{name.replace('_', '.')}": much for name, much in allocatable.items()
            },
            "nodeInfo": {"kubeletVersion": "v1.34.4"},
        },
    }


def each(
    count: str | None, offers: str = '{"nvidia.com/gpu.shared": 4}', **allocatable: str
) -> dict[str, Any]:
    """A node whose pool promises for each GPU, with Karpenter's label of how many it has."""
    made = node(**allocatable)
    made["metadata"]["annotations"] = {"gpuform.io/offers-per-gpu": offers}
    if count is not None:
        made["metadata"]["labels"] = {"karpenter.k8s.aws/instance-gpu-count": count}
    return made


def pod(app: str, phase: str = "Running", ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{app}-x", "labels": {"app": app}, "creationTimestamp": BORN, **metadata},
        "spec": {"containers": [{"image": f"nvcr.io/nvidia/{app}:v1"}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }


GOOD = [pod(app) for app in OPERANDS]
GONE = "2026-11-21T12:00:00Z"
WAITS: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
    (node(), GOOD, "it offers 0 of 4 nvidia.com/gpu.shared"),
    (node(gpu_shared="3"), GOOD, "it offers 3 of 4 nvidia.com/gpu.shared"),
    (node(gpu="4"), GOOD, "it offers 0 of 4 nvidia.com/gpu.shared"),
    (node(gpu_shared="4"), GOOD[:1], "nvidia-operator-validator has no pod"),
    (node(gpu_shared="4"), [GOOD[0], pod(OPERANDS[1], ready="False")], "nvidia-operator-validator-x is not"),
    (node(gpu_shared="4"), [GOOD[0], pod(OPERANDS[1], phase="Failed")], "nvidia-operator-validator-x is not"),
    (node(gpu_shared="4"), [*GOOD, pod(OPERANDS[1], phase="Pending")], "nvidia-operator-validator-x is not"),
    (node(gpu_shared="4"), [GOOD[0], pod(OPERANDS[1], deletionTimestamp=GONE)], "validator-x is not ready"),
    (node(gpu_shared="4"), [GOOD[0], pod(OPERANDS[1], creationTimestamp=BEFORE)], "validator has no pod"),
    (node("four", gpu_shared="4"), GOOD, "annotation gpuform.io/offers does not say"),
    (node('["nvidia.com/gpu"]', gpu_shared="4"), GOOD, "annotation gpuform.io/offers does not say"),
    (node("{}", gpu_shared="4"), GOOD, "annotation gpuform.io/offers does not say"),
    (node(None, gpu_shared="4"), GOOD, "annotation gpuform.io/offers does not say"),
    (each("4", gpu_shared="3"), GOOD, "it offers 3 of 16 nvidia.com/gpu.shared"),
    (each("4", gpu_shared="15"), GOOD, "it offers 15 of 16 nvidia.com/gpu.shared"),
    (each("1", gpu_shared="3"), GOOD, "it offers 3 of 4 nvidia.com/gpu.shared"),
    (each(None, gpu_shared="16"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count"),
    (each("", gpu_shared="16"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count does"),
    (each("four", gpu_shared="16"), GOOD, "offers-per-gpu with label"),
    (each("0"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count does"),
    (each("-4"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count does"),
    (each("4", offers="{}", gpu_shared="16"), GOOD, "offers-per-gpu with label"),
    (each("4", offers="four", gpu_shared="16"), GOOD, "offers-per-gpu with label"),
]  # fmt: skip


@pytest.mark.parametrize(("waiting", "pods", "said"), WAITS)
def test_a_node_waits_for_what_is_missing_and_says_it(
    waiting: dict[str, Any], pods: list[dict[str, Any]], said: str
) -> None:
    (reason,) = gate.missing(waiting, pods, OPERANDS)
    assert said in reason


@pytest.mark.parametrize("much", ["4", "5", "1k"])
def test_a_node_that_keeps_its_promise_waits_for_nothing(much: str) -> None:
    assert gate.missing(node(gpu_shared=much), GOOD, OPERANDS) == []
    done = [GOOD[0], pod(OPERANDS[1], phase="Succeeded", ready="False")]
    assert gate.missing(node(gpu_shared=much), done, OPERANDS) == []


@pytest.mark.parametrize(("count", "much"), [("1", "4"), ("4", "16"), ("4", "17"), ("8", "32")])
def test_a_promise_for_each_gpu_is_kept_by_all_of_them(count: str, much: str) -> None:
    kept = each(count, gpu_shared=much)
    assert gate.missing(kept, GOOD, OPERANDS) == []
    found = json.loads(gate.evidence(kept, GOOD, OPERANDS, datetime.datetime.now(datetime.UTC)))
    assert found["offers"] == {"nvidia.com/gpu.shared": 4 * int(count)}


def test_a_node_without_annotations_promises_nothing_that_could_be_kept() -> None:
    bare = node(gpu_shared="4")
    del bare["metadata"]["annotations"]
    assert gate.missing(bare, GOOD, OPERANDS)


@pytest.mark.parametrize(
    ("state", "said"), [(None, "not begun"), ("pending", "pending"), ("failed", "failed")]
)
def test_slices_count_only_once_the_layout_is_in_place(state: str | None, said: str) -> None:
    cut = node('{"nvidia.com/gpu": 1}', gpu="1")
    cut["metadata"]["labels"] = {"nvidia.com/mig.config": "all-disabled"}
    if state:
        cut["metadata"]["labels"]["nvidia.com/mig.config.state"] = state
    assert gate.missing(cut, GOOD, OPERANDS) == [f"MIG layout all-disabled is {said}"]
    cut["metadata"]["labels"]["nvidia.com/mig.config.state"] = "success"
    assert gate.missing(cut, GOOD, OPERANDS) == []


def test_only_our_taint_goes_and_only_from_where_it_was_seen() -> None:
    twice = {**OURS, "value": "again"}
    waiting = node()
    waiting["spec"]["taints"] = [OURS, FOREIGN, twice]
    *operations, noted = gate.lifting(waiting, "found")
    assert operations == [
        {"op": "test", "path": "/spec/taints/2", "value": twice},
        {"op": "remove", "path": "/spec/taints/2"},
        {"op": "test", "path": "/spec/taints/0", "value": OURS},
        {"op": "remove", "path": "/spec/taints/0"},
    ]
    assert noted == {"op": "add", "path": "/metadata/annotations/gpuform.io~1gpu-ready", "value": "found"}


def test_the_evidence_has_time_and_versions() -> None:
    proven = node(gpu_shared="4")
    proven["metadata"]["labels"]["nvidia.com/cuda.driver-version.full"] = "595.91.07"
    other = pod("nvidia-dcgm-exporter")
    now = datetime.datetime(2026, 11, 21, 12, 0, tzinfo=datetime.UTC)
    assert json.loads(gate.evidence(proven, [*GOOD, other], OPERANDS, now)) == {
        "at": "2026-11-21T12:00:00Z",
        "driver": "595.91.07",
        "kubelet": "v1.34.4",
        "offers": {"nvidia.com/gpu.shared": 4},
        "operands": {app: f"{app}:v1" for app in OPERANDS},
    }


def test_it_needs_nothing_but_the_standard_library() -> None:
    tree = ast.parse(Path(gate.__file__).read_text())
    names = {
        name.partition(".")[0]
        for statement in ast.walk(tree)
        if isinstance(statement, ast.Import | ast.ImportFrom)
        for name in (
            [a.name for a in statement.names]
            if isinstance(statement, ast.Import)
            else [statement.module or ""]
        )
    }
    assert names <= sys.stdlib_module_names
