"""The readiness table, on objects as the server returns them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.plugins.kubernetes.readiness import readiness

pytestmark = pytest.mark.unit


def live(kind: str, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    api_version, _, name = kind.rpartition("/")
    meta = {"name": "x", "generation": 1, **metadata}
    return {
        "apiVersion": api_version,
        "kind": name,
        "metadata": meta,
        "spec": spec or {},
        "status": status or {},
    }


def truth(type: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": status, **more}]}


UNPLACED = truth(
    "PodScheduled", "False", reason="Unschedulable", message="0/9 nodes are available: 9 taints."
)
BACKOFF = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}


@pytest.mark.parametrize(
    ("manifest", "missing", "failed"),
    [
        (live("v1/Pod", status={"phase": "Running", **truth("Ready")}), "", False),
        (live("v1/Pod", status={"phase": "Succeeded"}), "", False),
        (
            live("v1/Pod", status={"phase": "Pending", **UNPLACED}),
            "Pending: Unschedulable: 0/9 nodes are available: 9 taints.",
            False,
        ),
        (
            live(
                "v1/Pod", status={"phase": "Pending", "containerStatuses": [{"name": "c", "state": BACKOFF}]}
            ),
            "Pending: container c: ImagePullBackOff: no such image",
            False,
        ),
        (
            live(
                "v1/Pod",
                status={"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"},
            ),
            "Failed: UnexpectedAdmissionError: no GPU",
            True,
        ),
        (live("apps/v1/Deployment"), "the controller has not seen it yet", False),
        (
            live(
                "apps/v1/Deployment",
                {"replicas": 2},
                {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 2},
            ),
            "2 of 2 replicas are available",
            False,
        ),
        (
            live(
                "apps/v1/Deployment",
                {"replicas": 2},
                {"observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
            ),
            "",
            False,
        ),
        (
            live(
                "apps/v1/Deployment",
                {"replicas": 0},
                {"observedGeneration": 1, **truth("Progressing", "False", reason="ProgressDeadlineExceeded")},
            ),
            "ProgressDeadlineExceeded",
            True,
        ),
        (live("apps/v1/DaemonSet", status={"observedGeneration": 1, "desiredNumberScheduled": 0}), "", False),
        (
            live("apps/v1/DaemonSet", status={"observedGeneration": 1, "desiredNumberScheduled": 2}),
            "0 of 2 pods are available",
            False,
        ),
        (
            live("apps/v1/StatefulSet", {"replicas": 1}, {"observedGeneration": 1, "readyReplicas": 1}),
            "1 of 1 replicas are ready, 0 of 1 are updated",
            False,
        ),
        (live("batch/v1/Job", status=truth("Complete")), "", False),
        (live("batch/v1/Job", {"completions": 3}, {"succeeded": 1}), "1 of 3 completions", False),
        (
            live("batch/v1/Job", status=truth("Failed", reason="BackoffLimitExceeded")),
            "Failed: BackoffLimitExceeded",
            True,
        ),
        (live("v1/Service", {"clusterIP": "None"}), "", False),
        (live("v1/Service", {"type": "LoadBalancer"}), "no load balancer has been given to it", False),
        (live("v1/Namespace", status={"phase": "Active"}), "", False),
        (live("v1/Namespace", status={"phase": "Terminating"}), "it is Terminating", False),
        (live("v1/PersistentVolumeClaim", status={"phase": "Pending"}), "it is Pending", False),
        (
            live("v1/ResourceQuota", {"hard": {"pods": "1"}}, {}),
            "the controller has not counted pods yet",
            False,
        ),
        (
            live("v1/Node", status=truth("Ready", "False", reason="Down")),
            "condition Ready is not true: Down",
            False,
        ),
        (
            live("apiextensions.k8s.io/v1/CustomResourceDefinition", status=truth("Established")),
            "",
            False,
        ),
        (live("v1/ConfigMap"), "", False),
        (live("example.com/v1/Pod"), "", False),
    ],
)
def test_readiness(manifest: dict[str, Any], missing: str, failed: bool) -> None:
    state = readiness(manifest)
    assert (state.missing, state.failed) == (missing, failed)
