"""Why a pod is pending, in words: from original messages of kube-scheduler 1.34.4 and Karpenter 1.14.0."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gpuform.usage.nodes import Event
from lab.rehearse.reasons import karpenter, scheduler, words

pytestmark = pytest.mark.unit

TABLE = yaml.safe_load(Path(__file__).with_name("pending.yaml").read_text())


@pytest.mark.parametrize("row", TABLE["scheduler"], ids=lambda row: row["said"])
def test_the_scheduler(row: dict[str, str]) -> None:
    assert scheduler(row["message"]) == row["said"]


@pytest.mark.parametrize("row", TABLE["karpenter"], ids=lambda row: row["said"])
def test_karpenter(row: dict[str, str]) -> None:
    assert (
        karpenter(f"Failed to schedule pod, {row['message']}") == f"Karpenter launches no node: {row['said']}"
    )


def test_both_are_heard_and_the_last_word_of_each_counts() -> None:
    def event(source: str, message: str, reason: str = "FailedScheduling") -> Event:
        return Event("Pod", "lab", "a", source, reason, message)

    told = [
        event("default-scheduler", "no nodes available to schedule pods"),
        event("default-scheduler", "0/1 nodes are available: 1 Insufficient cpu."),
        event("karpenter", "Failed to schedule pod, all ... exceed limits for nodepool (NodePool=p)"),
        event("karpenter", "Pod should schedule on: nodeclaim/p-x", "Nominated"),
    ]
    assert words(told) == (
        "0 of 1 nodes fit: 1 has insufficient cpu; Karpenter launches no node: NodePool p is at its limit"
    )
    assert words([]) == ""


def test_a_nodepool_from_which_nothing_is_to_be_had_is_named_where_karpenter_leaves_it_out() -> None:
    said = (
        "Failed to schedule pod, incompatible requirements, key gpuform.io/pool, gpuform.io/pool In [h100] "
        "not in gpuform.io/pool In [cpu]"
    )
    assert (
        karpenter(said, ["h100"])
        == "Karpenter launches no node: NodePool h100 has no available instance type"
    )
    assert karpenter(said) == "Karpenter launches no node: no NodePool matches the pod"
