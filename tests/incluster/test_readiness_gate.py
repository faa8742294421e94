"""The gate program's decisions for a node and its pods; without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infra.incluster import proof

pytestmark = pytest.mark.unit

CREATED, BEFORE = "2026-11-21T11:00:00Z", "2026-11-21T10:59:59Z"
OPERANDS = ["nvidia-device-plugin-daemonset", "nvidia-operator-validator"]
DRIVER = "nvidia.com/cuda.driver-version.full"
POOL = {"labels": [DRIVER], "operands": OPERANDS}
STARTUP_TAINT = {"key": "gpuform.io/gpu-not-ready", "effect": "NoSchedule"}
FOREIGN = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def node(offers: object = '{"nvidia.com/gpu.shared": 4}', **allocatable: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "n",
            "creationTimestamp": CREATED,
            "labels": {DRIVER: "595.91.07"},
            "annotations": {"gpuform.io/offers": offers},
        },
        "spec": {"taints": [FOREIGN, STARTUP_TAINT]},
        "status": {
            "allocatable": {
                f"nvidia.com/{name.replace('_', '.')}": amount for name, amount in allocatable.items()
            },
            "nodeInfo": {"kubeletVersion": "v1.34.4"},
        },
    }


def per_gpu(
    count: str | None, offers: str = '{"nvidia.com/gpu.shared": 4}', **allocatable: str
) -> dict[str, Any]:
    """A node with a promise for each GPU, and Karpenter's label of the number of GPUs."""
    result = node(**allocatable)
    result["metadata"]["annotations"] = {"gpuform.io/offers-per-gpu": offers}
    if count is not None:
        result["metadata"]["labels"]["karpenter.k8s.aws/instance-gpu-count"] = count
    return result


def pod(app: str, phase: str = "Running", ready: str = "True", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": f"{app}-x", "labels": {"app": app}, "creationTimestamp": CREATED, **metadata},
        "spec": {"containers": [{"image": f"nvcr.io/nvidia/{app}:v1"}]},
        "status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]},
    }


GOOD = [pod(app) for app in OPERANDS]
GONE = "2026-11-21T12:00:00Z"
WAITING: list[tuple[dict[str, Any], list[dict[str, Any]], str]] = [
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
    (node('{"nvidia.com/gpu": 1e999}', gpu_shared="4"), GOOD, "annotation gpuform.io/offers does not say"),
    (node(None, gpu_shared="4"), GOOD, "annotation gpuform.io/offers does not say"),
    (per_gpu("4", gpu_shared="3"), GOOD, "it offers 3 of 16 nvidia.com/gpu.shared"),
    (per_gpu("4", gpu_shared="15"), GOOD, "it offers 15 of 16 nvidia.com/gpu.shared"),
    (per_gpu("1", gpu_shared="3"), GOOD, "it offers 3 of 4 nvidia.com/gpu.shared"),
    (per_gpu(None, gpu_shared="16"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count"),
    (per_gpu("", gpu_shared="16"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count"),
    (per_gpu("four", gpu_shared="16"), GOOD, "offers-per-gpu with label"),
    (per_gpu("0"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count"),
    (per_gpu("-4"), GOOD, "offers-per-gpu with label karpenter.k8s.aws/instance-gpu-count"),
    (per_gpu("4", offers="{}", gpu_shared="16"), GOOD, "offers-per-gpu with label"),
    (per_gpu("4", offers="four", gpu_shared="16"), GOOD, "offers-per-gpu with label"),
]  # fmt: skip


@pytest.mark.parametrize(("waiting", "pods", "text"), WAITING)
def test_a_node_waits_for_what_is_missing_and_says_it(
    waiting: dict[str, Any], pods: list[dict[str, Any]], text: str
) -> None:
    (reason,) = proof.unmet_conditions(waiting, pods, POOL, {})
    assert text in reason


@pytest.mark.parametrize("amount", ["4", "5", "1k"])
def test_a_node_that_keeps_its_promise_waits_for_nothing(amount: str) -> None:
    assert proof.unmet_conditions(node(gpu_shared=amount), GOOD, POOL, {}) == []
    done = [GOOD[0], pod(OPERANDS[1], phase="Succeeded", ready="False")]
    assert proof.unmet_conditions(node(gpu_shared=amount), done, POOL, {}) == []


@pytest.mark.parametrize(("count", "amount"), [("1", "4"), ("4", "16"), ("4", "17"), ("8", "32")])
def test_a_promise_for_each_gpu_is_kept_by_all_of_them(count: str, amount: str) -> None:
    ready_node = per_gpu(count, gpu_shared=amount)
    assert proof.unmet_conditions(ready_node, GOOD, POOL, {}) == []
    evidence = json.loads(proof.evidence(ready_node, GOOD, POOL, ""))
    assert evidence["offers"] == {"nvidia.com/gpu.shared": 4 * int(count)}


def node_without_promise(**allocatable: str) -> dict[str, Any]:
    """A node without a promise, as in a node group."""
    result = node(**allocatable)
    del result["metadata"]["annotations"]
    return result


def test_a_node_without_annotations_promises_nothing_that_could_be_kept() -> None:
    assert proof.unmet_conditions(node_without_promise(gpu_shared="4"), GOOD, POOL, {})


def test_a_node_that_was_born_without_a_promise_has_to_keep_its_pools() -> None:
    pool = {**POOL, "offers": {"nvidia.com/gpu": 8}}
    assert proof.unmet_conditions(node_without_promise(gpu="7"), GOOD, pool, {}) == [
        "it offers 7 of 8 nvidia.com/gpu"
    ]
    assert proof.unmet_conditions(node_without_promise(gpu="8"), GOOD, pool, {}) == []
    evidence = json.loads(proof.evidence(node_without_promise(gpu="8"), GOOD, pool, ""))
    assert evidence["offers"] == {"nvidia.com/gpu": 8}


@pytest.mark.parametrize(("count", "kept"), [("4", True), ("8", False), ("7", False), (None, False)])
def test_a_pools_promise_may_depend_on_the_nodes_number_of_gpus(count: str | None, kept: bool) -> None:
    pool = {**POOL, "offers": {"4": {"nvidia.com/gpu": 4}, "8": {"nvidia.com/gpu": 8}}}
    waiting = node_without_promise(gpu="4")
    waiting["metadata"]["labels"] |= {"nvidia.com/gpu.count": count} if count else {}
    reasons = proof.unmet_conditions(waiting, GOOD, pool, {})
    assert (reasons == []) == kept
    if count != "8" and not kept:
        assert reasons == ["label nvidia.com/gpu.count does not say what its pool promises"]


def test_a_promise_of_its_own_comes_before_that_of_the_pool() -> None:
    """A Karpenter node keeps the promise of its pool at its creation."""
    pool = {**POOL, "offers": {"nvidia.com/gpu.shared": 8}}
    assert proof.unmet_conditions(node(gpu_shared="4"), GOOD, pool, {}) == []


def test_a_node_without_a_driver_stays_out() -> None:
    blind = node(gpu_shared="4")
    blind["metadata"]["labels"] = {"gpuform.io/pool": "p"}
    assert proof.unmet_conditions(blind, GOOD, POOL, {}) == [f"label {DRIVER} is missing"]
    assert proof.unmet_conditions(blind, GOOD, None, {}) == ["its pool p is not declared"]


def slices(*generations: tuple[int, list[str]], driver: str = "gpu.nvidia.com") -> list[dict[str, Any]]:
    """A node's ResourceSlices: generation and device types of each."""
    return [
        {
            "spec": {
                "driver": driver,
                "pool": {"name": "n", "generation": generation},
                "devices": [{"name": "x", "attributes": {"type": {"string": kind}}} for kind in kinds],
            }
        }
        for generation, kinds in generations
    ]


@pytest.mark.parametrize(
    ("slices_", "devices"),
    [
        ([], {}),
        (slices((1, ["gpu", "gpu"])), {"gpu.nvidia.com": 2}),
        (slices((1, ["gpu", "gpu"]), (2, ["gpu"]), (2, ["mig"])), {"gpu.nvidia.com": 1, "mig.nvidia.com": 1}),
        (
            [{"spec": {"driver": "gpu.nvidia.com", "pool": {"name": "n", "generation": 1}, "devices": None}}],
            {},
        ),
        # Of another driver; its pool has the node's name as well, with its own generations.
        ([*slices((1, ["gpu"])), *slices((7, ["gpu", "nic"]), driver="dra.net")], {"gpu.nvidia.com": 1}),
    ],
)
def test_devices_are_counted_by_class_and_old_ones_do_not_count(
    slices_: list[dict[str, Any]], devices: dict[str, int]
) -> None:
    assert proof.count_devices(slices_) == devices


def test_a_node_with_gpus_by_claim_is_proven_by_its_devices() -> None:
    claimed, pool = node('{"gpu.nvidia.com": 2}'), {"labels": [DRIVER], "operands": []}
    assert proof.promises_claims(claimed, pool)
    assert not proof.promises_claims(node(), POOL)
    assert proof.unmet_conditions(claimed, [], pool, {}) == ["it offers 0 of 2 gpu.nvidia.com"]
    assert proof.unmet_conditions(claimed, [], pool, {"gpu.nvidia.com": 2}) == []


@pytest.mark.parametrize(
    ("state", "text"), [(None, "not started"), ("pending", "pending"), ("failed", "failed")]
)
def test_slices_count_only_once_the_layout_is_in_place(state: str | None, text: str) -> None:
    node_ = node('{"nvidia.com/gpu": 1}', gpu="1")
    node_["metadata"]["labels"]["nvidia.com/mig.config"] = "all-disabled"
    if state:
        node_["metadata"]["labels"]["nvidia.com/mig.config.state"] = state
    assert proof.unmet_conditions(node_, GOOD, POOL, {}) == [f"MIG layout all-disabled is {text}"]
    node_["metadata"]["labels"]["nvidia.com/mig.config.state"] = "success"
    assert proof.unmet_conditions(node_, GOOD, POOL, {}) == []


def test_only_our_taint_goes_and_only_from_where_it_was_seen() -> None:
    twice = {**STARTUP_TAINT, "value": "again"}
    waiting = node()
    waiting["spec"]["taints"] = [STARTUP_TAINT, FOREIGN, twice]
    *operations, evidence = proof.lift_patch(waiting, "found")
    assert operations == [
        {"op": "test", "path": "/spec/taints/2", "value": twice},
        {"op": "remove", "path": "/spec/taints/2"},
        {"op": "test", "path": "/spec/taints/0", "value": STARTUP_TAINT},
        {"op": "remove", "path": "/spec/taints/0"},
    ]
    assert evidence == {"op": "add", "path": "/metadata/annotations/gpuform.io~1gpu-ready", "value": "found"}


def test_reason_of_waiting_is_removed_with_the_taint() -> None:
    waiting = node()
    waiting["metadata"]["annotations"]["gpuform.io/gpu-waits-for"] = "it offers"
    *_, removal, evidence = proof.lift_patch(waiting, "found")
    assert removal == {"op": "remove", "path": "/metadata/annotations/gpuform.io~1gpu-waits-for"}
    assert evidence["op"] == "add"


def test_a_node_without_annotations_gets_a_place_for_the_proof() -> None:
    *_, check, creation, evidence = proof.lift_patch(node_without_promise(), "found")
    assert check == {"op": "test", "path": "/metadata/annotations", "value": None}
    assert creation == {"op": "add", "path": "/metadata/annotations", "value": {}}
    assert evidence["path"] == "/metadata/annotations/gpuform.io~1gpu-ready"


def test_the_evidence_has_time_and_versions() -> None:
    proven = node(gpu_shared="4")
    proven["metadata"]["labels"]["nvidia.com/cuda.runtime-version.full"] = "13.2"
    other = pod("nvidia-dcgm-exporter")
    assert json.loads(proof.evidence(proven, [*GOOD, other], POOL, "2026-11-21T12:00:00Z")) == {
        "at": "2026-11-21T12:00:00Z",
        "cuda": "13.2",
        "driver": "595.91.07",
        "kubelet": "v1.34.4",
        "offers": {"nvidia.com/gpu.shared": 4},
        "operands": {app: f"{app}:v1" for app in OPERANDS},
    }
