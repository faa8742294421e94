"""What the simulator keeps of nodes and pods: only what the operands need."""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import keys
from lab.simulator.objects import node_of, pod_of

pytestmark = pytest.mark.unit


def raw_pod(
    annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None
) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1", "cpu": "4"}
    meta = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "t"}
    return {
        "metadata": {**meta, "annotations": annotations or {}, "labels": labels or {}},
        "spec": {
            "nodeName": "node-0",
            "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
            "volumes": [{"name": "c", "configMap": {"name": "app"}}, {"name": "s", "emptyDir": {}}],
        },
        "status": {"phase": "Running"},
    }


def test_a_pod_that_says_what_memory_it_wants_may_fail_by_container() -> None:
    pod = pod_of(raw_pod({keys.MEMORY: "all", keys.MEMORY_HELD: "12"}))
    assert pod is not None
    assert (pod.memory, pod.held) == ("all", "12")
    assert pod.template.containers == (("main", "x"),)
    assert pod.template.config_map == ""  # ConfigMaps of other pods are not kept


def test_plain_pods_with_the_same_containers_share_one_template() -> None:
    pods = [pod_of(raw_pod(labels={"app": app})) for app in ("web", "gpuform-trial")]
    assert pods[0] is not None
    assert pods[1] is not None
    assert pods[0].template is pods[1].template
    assert [pod.trial for pod in pods if pod] == [False, True]


def test_a_node_keeps_the_simulators_own_annotations() -> None:
    annotations = {keys.UNHEALTHY: "1", "other.example.org/note": "x"}
    meta = {"name": "n", "uid": "u", "resourceVersion": "7", "annotations": annotations}
    node = node_of({"metadata": meta, "spec": {}, "status": {}})
    assert node.annotations == {keys.UNHEALTHY: "1"}


def test_whole_thousands_of_shares_are_read_as_the_api_server_writes_them() -> None:
    meta = {"name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": "t"}
    node = node_of({"metadata": meta, "spec": {}, "status": {"allocatable": {"nvidia.com/gpu.shared": "1k"}}})
    assert node.allocatable == {"nvidia.com/gpu.shared": 1000}
