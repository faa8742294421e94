"""What a pod waits for, from objects as the server returns them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.kubernetes.pods import missing, worst

pytestmark = pytest.mark.unit


def truth(type: str, status: str = "True", **more: str) -> dict[str, Any]:
    return {"conditions": [{"type": type, "status": status, **more}]}


UNPLACED = truth(
    "PodScheduled", "False", reason="Unschedulable", message="0/9 nodes are available: 9 taints."
)
BACKOFF = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"phase": "Running", **truth("Ready")}, ""),
        ({"phase": "Succeeded"}, ""),
        ({"phase": "Pending", **UNPLACED}, "Pending: Unschedulable: 0/9 nodes are available: 9 taints."),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "i", "state": ENDED}],
                "containerStatuses": [{"name": "c", "state": BACKOFF}],
            },
            "Pending: container c: ImagePullBackOff: no such image",
        ),
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "no GPU"},
            "Failed: UnexpectedAdmissionError: no GPU",
        ),
        ({}, "Pending: not ready yet"),
    ],
)
def test_what_a_pod_waits_for(status: dict[str, Any], why: str) -> None:
    pod = {"metadata": {"name": "x"}, "status": status}
    assert missing(pod) == why
    assert worst([pod]) == (f"pod x is {why}" if why else "")
