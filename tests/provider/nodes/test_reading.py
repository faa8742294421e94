"""Functions of relayouts without a cluster: reading of nodes and pods, order of nodes."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Cancelled
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.nodes.drain import claim_names, gpu_pods, obstacle, refusal, uses_gpu
from gpuform.provider.nodes.layout import (
    LAYOUT,
    NOTE,
    Layout,
    Note,
    differences,
    is_applied,
    is_requested,
    is_under_way,
)
from gpuform.provider.nodes.rolling import max_unavailable, roll
from gpuform.provider.nodes.shares import changes_sharing, requests_of
from tests.fakes.client import FakeClient

pytestmark = pytest.mark.unit


SLICE, GPU = "nvidia.com/mig-1g.5gb", "nvidia.com/gpu"


def _pod(resources=None, owner=None, init=None, **meta):
    spec = {"containers": [{"resources": resources or {}}], "initContainers": [{"resources": init or {}}]}
    owners = [{"kind": owner, "controller": True}] if owner else [{"kind": "X", "controller": False}]
    return {"metadata": {"name": "p", "namespace": "n", "ownerReferences": owners, **meta}, "spec": spec}


def _node(config="", state="", offers=None, note=""):
    labels = {"nvidia.com/mig.config": config, "nvidia.com/mig.config.state": state}
    meta = {"name": "n", "labels": labels, "annotations": {NOTE: note} if note else {}}
    return {"metadata": meta, "status": {"allocatable": offers or {}}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (_pod(), False),
        (_pod({"limits": {"cpu": "1"}}), False),
        (_pod({"limits": {"nvidia.com/gpu": "0"}}), False),
        (_pod({"limits": {"nvidia.com/gpu.shared": "1"}}), True),
        (_pod({"requests": {SLICE: "1"}}), True),
        (_pod(init={"limits": {"nvidia.com/gpu": "1"}}), True),
    ],
)
def test_which_pods_use_a_gpu(pod, expected):
    assert uses_gpu(pod) is expected


def _pod_with_claim(*statuses, **direct):
    named = [{"name": "own", **direct}] if direct else [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pod = _pod()
    pod["spec"]["resourceClaims"] = named
    return {**pod, "status": {"resourceClaimStatuses": list(statuses)}}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (_pod(), []),
        (_pod_with_claim(), []),
        (_pod_with_claim({"name": "gpu"}), []),
        (_pod_with_claim({"name": "gpu", "resourceClaimName": "p-gpu-x"}), ["p-gpu-x"]),
        (_pod_with_claim(resourceClaimName="mine"), ["mine"]),
    ],
)
def test_which_claims_a_pod_holds(pod, expected):
    assert claim_names(pod) == expected


def _allocated_by(driver):
    return {"allocation": {"devices": {"results": [{"driver": driver, "pool": "n", "device": "gpu-0"}]}}}


@pytest.mark.parametrize(
    ("claim", "uses"),
    [
        (_allocated_by("gpu.nvidia.com"), True),
        (_allocated_by("compute-domain.nvidia.com"), False),
        ({}, False),
        (None, True),
    ],
)
def test_a_pod_uses_a_gpu_once_nvidias_driver_has_given_one_to_its_claim(claim, uses):
    client, pod = FakeClient(), _pod_with_claim({"name": "gpu", "resourceClaimName": "p-gpu-x"})
    client.objects["pods"] = [{**item, "metadata": {**item["metadata"], "uid": ""}} for item in (_pod(), pod)]
    if claim is not None:
        client.add("resourceclaims", "p-gpu-x", "n", status=claim)
    found = asyncio.run(gpu_pods(Cluster(client), "node"))
    assert [claim_names(item) for item in found] == ([["p-gpu-x"]] if uses else [])


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        ("ReplicaSet", ""),
        ("Job", ""),
        (None, "has no controller that would recreate it"),
        ("DaemonSet", "belongs to a DaemonSet, which would recreate it on this node at once"),
        ("Node", "is a static pod of the node"),
    ],
)
def test_which_pods_cannot_be_evicted(owner, expected):
    assert obstacle(_pod(owner=owner)) == expected
    assert obstacle(_pod(owner=owner, namespace="gpuform-trial")) == "", "the gate makes another one"


def test_a_pod_holds_what_its_containers_ask_for_together_or_its_largest_init_container():
    pod = _pod({"limits": {SLICE: "2"}}, init={"requests": {SLICE: "1", "cpu": "4"}, "limits": {SLICE: "3"}})
    pod["spec"]["containers"].append({"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    assert requests_of(pod) == {SLICE: 3, "nvidia.com/gpu": 1}
    assert requests_of(_pod({"limits": {"nvidia.com/gpu": "2k"}})) == {"nvidia.com/gpu": 2000}


def test_a_bare_pod_that_is_leaving_is_no_obstacle():
    assert refusal("n", [_pod(deletionTimestamp="2026-01-01T00:00:00Z")]) == ""
    assert "pod n/p has no controller" in refusal("n", [_pod()])


@pytest.mark.parametrize(
    ("offers", "allocatable", "expected"),
    [
        ({SLICE: 7}, {SLICE: "7", "cpu": "8"}, []),
        ({SLICE: 7, "nvidia.com/gpu": 0}, {SLICE: "7"}, []),
        ({SLICE: 7}, {SLICE: "7", "nvidia.com/mig-3g.20gb": "0"}, []),
        ({SLICE: 7}, {SLICE: "6"}, [f"{SLICE} 6 instead of 7"]),
        # The API server writes whole thousands like this: 7 slices of 8 GPUs, 125 shares each.
        ({f"{SLICE}.shared": 7000}, {f"{SLICE}.shared": "7k"}, []),
        ({SLICE: 7}, {SLICE: "7", "nvidia.com/mig-3g.20gb": "1"}, ["nvidia.com/mig-3g.20gb 1 instead of 0"]),
        ({SLICE: 7, GPU: 0}, {SLICE: "7", GPU: "1"}, [f"{GPU} 1 instead of 0"]),
    ],
)
def test_what_a_node_offers_against_what_it_should(offers, allocatable, expected):
    assert differences(_node(offers=allocatable), Layout("c", offers)) == expected


@pytest.mark.parametrize(
    ("node", "applied", "under_way"),
    [
        (_node("c", "success", {SLICE: "7"}), True, True),
        (_node("c", "success", {SLICE: "1"}), False, True),
        (_node("c", "pending"), False, True),
        (_node("c", "failed"), False, False),
        (_node("d", "success", {SLICE: "7"}), False, False),
        (_node("c", "success", {SLICE: "7"}, Note("", "c", True).text()), False, False),
    ],
)
def test_a_node_has_its_layout_or_is_on_the_way_to_it(node, applied, under_way):
    layout = Layout("c", {SLICE: 7})
    assert (is_applied(node, layout), is_under_way(node, layout)) == (applied, under_way)


@pytest.mark.parametrize(
    ("recorded", "content", "requested"),
    [(None, "a", True), ("a", "a", True), ("b", "a", False), ("failed", "a", False), ("b", "", True)],
)
def test_a_name_that_people_chose_stands_for_one_layout_at_a_time(recorded, content, requested):
    node = _node("c", "success", {SLICE: "7"})
    if recorded is not None:
        node["metadata"].setdefault("annotations", {})[LAYOUT] = recorded
    layout = Layout("c", {SLICE: 7}, content)
    assert is_requested(node, layout) is requested
    assert is_applied(node, layout) is requested
    assert is_under_way(node, layout) is requested


def test_a_note_survives_its_annotation_and_a_broken_one_counts_as_none():
    note = Note("small", "large", True)
    assert Note.from_node(_node(note=note.text())) == note
    assert Note.from_node(_node(note="{")) is None
    assert Note.from_node(_node(note='{"source": "a"}')) is None


@pytest.mark.parametrize(
    ("config", "recorded", "sharing", "expected"),
    [
        ("", None, {}, True),
        ("all-disabled", None, {}, True),
        ("all-1g.5gb", None, {}, False),
        ("all-1g.5gb", None, {"layout": "all-1g.5gb"}, True),
        ("all-2g.10gb", None, {"layout": "all-1g.5gb"}, False),
        ("", None, {"layout": "all-1g.5gb"}, False),
        ("ours", "12345678", {"layout": "ours", "content": "12345678"}, True),
        ("ours", "12345678", {"layout": "ours", "content": "87654321"}, False),
    ],
)
def test_shares_move_where_the_gpus_stay_as_they_are(config, recorded, sharing, expected):
    key = "nvidia.com/device-plugin.config"
    labels = {key: "before", **({"nvidia.com/mig.config": config} if config else {})}
    node = {"metadata": {"labels": labels, "annotations": {LAYOUT: recorded} if recorded else {}}}
    inputs = {"labels": {key: "after"}, "sharing": {"label": key, "offers": {}, **sharing}}
    assert changes_sharing(node, inputs) is expected


UNHEALTHY = [{"key": "gpuform.io/gpu-unhealthy", "value": "replace"}]


@pytest.mark.parametrize(
    ("capacity", "taints", "applied"),
    [
        ({}, [], False),
        ({SLICE: "14"}, [], True),  # as the kubelet reports it for an unhealthy GPU
        ({SLICE: "14", "nvidia.com/mig-2g.10gb": "1"}, [], False),
        ({SLICE: "7"}, [], False),  # after a reboot without the GPU
        ({SLICE: "7"}, UNHEALTHY, True),
    ],
)
def test_a_broken_gpu_is_no_matter_of_the_layout(capacity, taints, applied):
    """An update of a pool with a faulty GPU waited for it for ten minutes, and failed."""
    node = _node("all-1g.5gb", "success", {SLICE: "7"})
    node["status"]["capacity"], node["spec"] = capacity, {"taints": taints}
    assert is_applied(node, Layout("all-1g.5gb", {SLICE: 14})) is applied
    assert not is_applied(node, Layout("all-2g.10gb", {"nvidia.com/mig-2g.10gb": 6}))


NAMES = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("budget", "nodes", "expected"),
    [(1, 5, 1), (3, 5, 3), (9, 5, 9), ("25%", 8, 2), ("25%", 7, 1), ("25%", 3, 1), ("100%", 3, 3)],
)
def test_a_share_is_rounded_down_to_one_at_least(budget, nodes, expected):
    assert max_unavailable(budget, nodes) == expected


class Changes:
    """Changes of nodes that take three turns of the loop each; ``outcomes`` maps names to errors."""

    def __init__(self, **outcomes):
        self.outcomes, self.begun, self.ended, self.peak = outcomes, [], [], 0

    async def change(self, name):
        self.begun.append(name)
        self.peak = max(self.peak, len(self.begun) - len(self.ended))
        for _ in range(3):
            await asyncio.sleep(0)
        self.ended.append(name)
        if name in self.outcomes:
            raise self.outcomes[name]
        return name == "b"


@pytest.mark.parametrize(("width", "most"), [(1, 1), (2, 2), (9, 5)])
def test_no_more_than_the_budget_are_under_way(width, most):
    changes = Changes()
    progress = asyncio.run(roll(NAMES, width, changes.change))
    assert (changes.peak, progress.changed, progress.failures) == (most, True, [])
    assert sorted(progress.ready) == NAMES


def test_after_a_failure_none_is_begun_and_the_others_go_to_their_end():
    changes = Changes(a=OperationError("node a: no"))
    progress = asyncio.run(roll(NAMES, 2, changes.change))
    assert changes.begun == changes.ended == ["a", "b"]
    assert progress.ready == ["b"]
    assert progress.failures == ["node a: no", "not started after that: c, d, e"]


def test_a_cancel_is_raised_when_all_have_stopped():
    changes = Changes(a=Cancelled("x"), b=Cancelled("x"))
    with pytest.raises(Cancelled):
        asyncio.run(roll(NAMES, 2, changes.change))
    assert changes.begun == changes.ended == ["a", "b"]


def test_an_unexpected_error_ends_the_changes_of_all_nodes():
    with pytest.raises(KeyError):
        asyncio.run(roll(NAMES, 2, Changes(a=KeyError("x")).change))
