"""Calculated group sizes: which nodes go when half of the pods go, and the message of a full group."""

from __future__ import annotations

from typing import Any, cast

import pytest

from lab.rehearse import pods
from lab.rehearse.cluster import NODES, PODS, Cluster
from lab.rehearse.node_source import Counted
from tests.plan.test_played_groups import ELASTIC, openstack

pytestmark = pytest.mark.unit


class Cards:
    """A cluster of dicts: three nodes with a pod each; the pod of pool-0-2 has no owner."""

    def __init__(self) -> None:
        self.gone: list[str] = []

    def items(self, path: str) -> list[dict[str, Any]]:
        assert path == PODS
        owner = [{"kind": "ReplicaSet"}]
        return [
            {
                "metadata": {
                    "namespace": "lab",
                    "name": f"pod-{index}",
                    "ownerReferences": owner if index < 2 else [],
                },
                "spec": {"nodeName": f"pool-0-{index}"},
            }
            for index in range(3)
        ]

    def delete(self, path: str) -> None:
        self.gone.append(path)


def test_what_half_of_the_pods_do_not_need_goes_with_its_pods() -> None:
    cards = Cards()
    Counted(openstack({"elastic": ELASTIC}, {"nodes": 2}, work=4)).hurry(cast(Cluster, cards))
    pod = "/api/v1/namespaces/lab/pods/pod-1?gracePeriodSeconds=0"
    assert cards.gone == [f"{NODES}/pool-0-1", pod], (
        "half of four pods need two of three nodes; pool-0-2 has a bare pod"
    )


@pytest.mark.parametrize(("work", "said"), [(2, ""), (9, "; group pool-0 is at its maximum of 3 nodes")])
def test_a_pod_that_waits_is_told_of_a_full_group(work: int, said: str) -> None:
    env = openstack({"elastic": ELASTIC}, work=work)
    assert pods._full(env, env.workloads[0]) == said
