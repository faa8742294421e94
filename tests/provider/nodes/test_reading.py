"""Functions of relayouts without a cluster: reading of nodes and pods, order of nodes."""

from __future__ import annotations

import asyncio

import pytest

from gpuform.checkout.errors import OperationError
from gpuform.provider.handler import Cancelled
from gpuform.provider.nodes.drain import claims, obstacle, of_gpu, refusal, users, uses_gpu
from gpuform.provider.nodes.layout import LAYOUT, NOTE, Note, Wanted, differences, done, told, under_way
from gpuform.provider.nodes.relayout import at_once, roll
from gpuform.provider.nodes.shares import asked, moves

pytestmark = pytest.mark.unit


SLICE = "nvidia.com/mig-1g.5gb"


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


def _claiming(*statuses, **direct):
    named = [{"name": "own", **direct}] if direct else [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pod = _pod()
    return {
        **pod,
        "spec": {**pod["spec"], "resourceClaims": named},
        "status": {"resourceClaimStatuses": list(statuses)},
    }


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (_pod(), []),
        (_claiming(), []),
        (_claiming({"name": "gpu"}), []),
        (_claiming({"name": "gpu", "resourceClaimName": "p-gpu-x"}), ["p-gpu-x"]),
        (_claiming(resourceClaimName="mine"), ["mine"]),
    ],
)
def test_which_claims_a_pod_holds(pod, expected):
    assert claims(pod) == expected


def _claim(driver):
    results = [{"driver": driver, "pool": "n", "device": "gpu-0", "request": "gpu"}]
    return {"status": {"allocation": {"devices": {"results": results}}}}


@pytest.mark.parametrize(
    ("claim", "expected"),
    [(_claim("gpu.nvidia.com"), True), (_claim("compute-domain.nvidia.com"), False), ({}, False)],
)
def test_a_claim_is_of_a_gpu_once_nvidias_driver_has_given_it_one(claim, expected):
    assert of_gpu(claim) is expected


@pytest.mark.parametrize(
    ("claim", "uses"), [(_claim("gpu.nvidia.com"), True), (_claim("nic.example"), False), (None, True)]
)
def test_a_pod_that_has_a_gpu_by_claim_uses_it(claim, uses):
    pod = _claiming({"name": "gpu", "resourceClaimName": "p-gpu-x"})

    class Cluster:
        async def pods(self, node):
            return [_pod(), pod]

        async def claim(self, namespace, name):
            assert (namespace, name) == ("n", "p-gpu-x")
            return claim

    assert asyncio.run(users(Cluster(), "node")) == ([pod] if uses else [])


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


def test_the_gates_trial_is_evicted_although_the_node_owns_it():
    pod = _pod(owner="Node")
    pod["metadata"]["namespace"] = "gpuform-trial"
    assert obstacle(pod) == ""


def test_a_pod_holds_what_its_containers_ask_for_together_or_its_largest_init_container():
    pod = _pod({"limits": {SLICE: "2"}}, init={"requests": {SLICE: "1", "cpu": "4"}, "limits": {SLICE: "3"}})
    pod["spec"]["containers"].append({"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    assert asked(pod) == {SLICE: 3, "nvidia.com/gpu": 1}
    assert asked(_pod({"limits": {"nvidia.com/gpu": "2k"}})) == {"nvidia.com/gpu": 2000}


def test_a_bare_pod_that_is_leaving_is_no_obstacle():
    assert refusal("n", [_pod(deletionTimestamp="2026-01-01T00:00:00Z")]) == ""
    assert "pod n/p has no controller" in refusal("n", [_pod()])


@pytest.mark.parametrize(
    ("offers", "live", "expected"),
    [
        ({SLICE: 7}, {SLICE: "7", "cpu": "8"}, []),
        ({SLICE: 7, "nvidia.com/gpu": 0}, {SLICE: "7"}, []),
        ({SLICE: 7}, {SLICE: "7", "nvidia.com/mig-3g.20gb": "0"}, []),
        ({SLICE: 7}, {SLICE: "6"}, [f"{SLICE} 6 instead of 7"]),
        # The API server writes whole thousands like this: 7 slices of 8 GPUs, 125 shares each.
        ({f"{SLICE}.shared": 7000}, {f"{SLICE}.shared": "7k"}, []),
        ({SLICE: 7}, {SLICE: "7", "nvidia.com/mig-3g.20gb": "1"}, ["nvidia.com/mig-3g.20gb 1 instead of 0"]),
        (
            {SLICE: 7, "nvidia.com/gpu": 0},
            {SLICE: "7", "nvidia.com/gpu": "1"},
            ["nvidia.com/gpu 1 instead of 0"],
        ),
    ],
)
def test_what_a_node_offers_against_what_it_should(offers, live, expected):
    assert differences(_node(offers=live), Wanted("c", offers)) == expected


@pytest.mark.parametrize(
    ("node", "is_done", "is_under_way"),
    [
        (_node("c", "success", {SLICE: "7"}), True, True),
        (_node("c", "success", {SLICE: "1"}), False, True),
        (_node("c", "pending"), False, True),
        (_node("c", "failed"), False, False),
        (_node("d", "success", {SLICE: "7"}), False, False),
        (_node("c", "success", {SLICE: "7"}, Note("", "c", True).text()), False, False),
    ],
)
def test_where_a_node_stands(node, is_done, is_under_way):
    wanted = Wanted("c", {SLICE: 7})
    assert (done(node, wanted), under_way(node, wanted)) == (is_done, is_under_way)


@pytest.mark.parametrize(
    ("noted", "content", "is_told"),
    [(None, "a", True), ("a", "a", True), ("b", "a", False), ("failed", "a", False), ("b", "", True)],
)
def test_a_name_that_people_chose_stands_for_one_layout_at_a_time(noted, content, is_told):
    node = _node("c", "success", {SLICE: "7"})
    if noted is not None:
        node["metadata"].setdefault("annotations", {})[LAYOUT] = noted
    wanted = Wanted("c", {SLICE: 7}, content)
    assert told(node, wanted) is is_told
    assert done(node, wanted) is is_told
    assert under_way(node, wanted) is is_told


def test_a_note_survives_its_annotation_and_a_broken_one_counts_as_none():
    note = Note("small", "large", True)
    assert Note.on(_node(note=note.text())) == note
    assert Note.on(_node(note="{")) is None
    assert Note.on(_node(note='{"source": "a"}')) is None


@pytest.mark.parametrize(
    ("config", "noted", "sharing", "expected"),
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
def test_shares_move_where_the_gpus_stay_as_they_are(config, noted, sharing, expected):
    key = "nvidia.com/device-plugin.config"
    labels = {key: "before", **({"nvidia.com/mig.config": config} if config else {})}
    node = {"metadata": {"labels": labels, "annotations": {LAYOUT: noted} if noted else {}}}
    inputs = {"labels": {key: "after"}, "sharing": {"label": key, "offers": {}, **sharing}}
    assert moves(node, inputs) is expected


def test_a_broken_gpu_is_no_matter_of_the_layout():
    """An update of a pool with a faulty GPU waited for it for ten minutes, and failed."""
    wanted = Wanted("all-1g.5gb", {SLICE: 14})
    sick = _node("all-1g.5gb", "success", {SLICE: "7"})
    assert not done(sick, wanted)
    sick["status"]["capacity"] = {SLICE: "14"}  # as the kubelet reports it for an unhealthy GPU
    assert done(sick, wanted)
    sick["status"]["capacity"] = {SLICE: "14", "nvidia.com/mig-2g.10gb": "1"}  # another layout
    assert not done(sick, wanted)


def test_a_node_that_was_put_out_of_use_is_not_waited_for():
    wanted = Wanted("all-1g.5gb", {SLICE: 14})
    lost = _node("all-1g.5gb", "success", {SLICE: "7"})
    lost["status"]["capacity"] = {SLICE: "7"}  # after a reboot without the GPU
    assert not done(lost, wanted)
    lost["spec"] = {"taints": [{"key": "gpuform.io/gpu-unhealthy", "value": "replace"}]}
    assert done(lost, wanted)
    assert not done(lost, Wanted("all-2g.10gb", {"nvidia.com/mig-2g.10gb": 6}))


NAMES = ["a", "b", "c", "d", "e"]


@pytest.mark.parametrize(
    ("budget", "nodes", "expected"),
    [(1, 5, 1), (3, 5, 3), (9, 5, 9), ("25%", 8, 2), ("25%", 7, 1), ("25%", 3, 1), ("100%", 3, 3)],
)
def test_a_share_is_rounded_down_to_one_at_least(budget, nodes, expected):
    assert at_once(budget, nodes) == expected


class Played:
    """Nodes that take three turns of the loop each; ``ends`` maps names to outcomes."""

    def __init__(self, **ends):
        self.ends, self.begun, self.ended, self.busy, self.most = ends, [], [], 0, 0

    async def one(self, name):
        self.begun.append(name)
        self.busy += 1
        self.most = max(self.most, self.busy)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if name in self.ends:
                raise self.ends[name]
        finally:
            self.busy -= 1
            self.ended.append(name)
        return name == "b"


@pytest.mark.parametrize(("width", "most"), [(1, 1), (2, 2), (9, 5)])
def test_no_more_than_the_budget_are_under_way(width, most):
    played = Played()
    rolled = asyncio.run(roll(NAMES, width, played.one))
    assert (played.most, sorted(rolled.ready), rolled.changed, rolled.failures) == (most, NAMES, True, [])


def test_after_a_failure_none_is_begun_and_the_others_go_to_their_end():
    played = Played(a=OperationError("node a: no"))
    rolled = asyncio.run(roll(NAMES, 2, played.one))
    assert played.begun == played.ended == ["a", "b"]
    assert rolled.ready == ["b"]
    assert rolled.failures == ["node a: no", "not started after that: c, d, e"]


def test_a_cancel_is_raised_when_all_have_stopped():
    played = Played(a=Cancelled("x"), b=Cancelled("x"))
    with pytest.raises(Cancelled):
        asyncio.run(roll(NAMES, 2, played.one))
    assert played.begun == played.ended == ["a", "b"]


def test_an_error_of_ours_ends_them_all_as_itself():
    with pytest.raises(KeyError):
        asyncio.run(roll(NAMES, 2, Played(a=KeyError("x")).one))
