"""The played DRA driver, and what the simulator keeps of nodes, pods and claims."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.simulator import device_plugin, dra, keys, mig_manager
from lab.simulator.actions import Publish, Withdraw
from lab.simulator.claimed import Claim, ClaimStore, Slice
from lab.simulator.hardware import GPUS
from lab.simulator.objects import Pod, parse_node, parse_pod
from lab.simulator.world import Config, World
from tests.lab.simulator.worlds import make_pod, make_world

pytestmark = pytest.mark.unit


def node(gpu: str = "20f1", found: str = "{}", runs: bool = True, **more: Any) -> World:
    """A node with a running driver; ``found`` is the MIG layout when the driver started."""
    world = make_world(gpu, **more)
    if runs:
        world.pods.append(make_pod("dra-1", dra.OPERAND))
        world.configs["uid-dra-1"] = Config("", data={"mig": found})
    return world


def published(world: World) -> dict[str, dict[str, Any]]:
    (action,) = dra.act(world)
    assert isinstance(action, Publish)
    assert not action.exists
    return {device["name"]: device for device in action.manifest["spec"]["devices"]}


def test_whole_gpus_with_what_the_driver_says_of_them() -> None:
    result = published(node("27b8", count=4))
    assert list(result) == ["gpu-0", "gpu-1", "gpu-2", "gpu-3"]
    device = result["gpu-0"]
    uuid = device["attributes"].pop("uuid")["string"]
    assert uuid.startswith("GPU-")
    assert device["attributes"] == {
        "type": {"string": "gpu"},
        "architecture": {"string": "Ada Lovelace"},
        "brand": {"string": "Nvidia"},
        "productName": {"string": "NVIDIA L4"},
        "cudaComputeCapability": {"version": "8.9.0"},
        "cudaDriverVersion": {"version": "13.2.0"},
        "driverVersion": {"version": "595.91.7"},
    }
    assert device["capacity"] == {"memory": {"value": "23034Mi"}}


def test_slices_instead_of_a_gpu_that_is_cut_beside_one_that_is_not() -> None:
    result = published(node(count=2, found='{"0": ["2g.10gb@0", "2g.10gb@2", "3g.20gb@4"]}'))
    assert list(result) == ["gpu-0-mig-2g10gb-14-0", "gpu-0-mig-2g10gb-14-2", "gpu-0-mig-3g20gb-9-4", "gpu-1"]
    small = result["gpu-0-mig-2g10gb-14-2"]
    assert small["attributes"]["profile"] == {"string": "2g.10gb"}
    assert small["attributes"]["type"] == {"string": "mig"}
    assert small["attributes"]["parentUUID"]["string"].startswith("GPU-")
    assert small["attributes"]["uuid"]["string"].startswith("MIG-")
    expected = {"memorySlice2": "1", "memorySlice3": "1", "multiprocessors": "28", "memory": "9856Mi"}
    assert small["capacity"] == {name: {"value": value} for name, value in expected.items()}


def test_a_gpu_in_mig_mode_without_an_instance_is_no_device() -> None:
    assert published(node(found='{"0": []}')) == {}


def test_every_profile_has_a_number_and_a_name_that_the_api_takes() -> None:
    for gpu in GPUS.values():
        profiles = gpu.mig.profiles if gpu.mig else {}
        assert len({dra.profile_id(gpu, profile) for profile in profiles}) == len(profiles)
    assert list(published(node(found='{"0": ["1g.5gb+me@0"]}'))) == ["gpu-0-mig-1g5gb-me-20-0"]


def test_it_is_owned_by_its_node() -> None:
    (action,) = dra.act(node())
    (owner,) = action.manifest["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Node", "uid-node-0")
    spec = action.manifest["spec"]
    assert (spec["driver"], spec["nodeName"], spec["pool"]["generation"]) == ("gpu.nvidia.com", "node-0", 1)


def as_published(world: World, **more: Any) -> Slice:
    (action,) = dra.act(world)
    assert isinstance(action, Publish)
    meta = action.manifest["metadata"]
    return replace(Slice(meta["name"], "node-0", 1, 1, meta["annotations"][keys.PUBLISHED]), **more)


def test_the_same_again_is_left_and_a_change_is_a_generation_more() -> None:
    whole, cut = node(), node(found='{"0": ["7g.40gb@0"]}')
    whole.published = as_published(whole, generation=4)
    assert dra.act(whole) == []
    cut.published = whole.published
    (action,) = dra.act(cut)
    assert (action.exists, action.manifest["spec"]["pool"]["generation"]) == (True, 5)


def test_a_driver_that_runs_sees_no_slice_that_is_cut_later() -> None:
    layout = '{"0": ["7g.40gb@0"]}'
    fresh = node(annotations={keys.MIG_LAYOUT: layout})
    started = make_pod("dra-1", dra.OPERAND, loaded=Config("", data={"mig": "{}"}).serialize())
    assert dra.discovered_layout(fresh.node, started).data == {"mig": "{}"}
    assert dra.discovered_layout(fresh.node, make_pod("dra-2", dra.OPERAND)).data == {"mig": layout}


def test_what_a_driver_that_is_gone_has_published_stays_for_a_while() -> None:
    world = node(runs=False)
    world.published = as_published(node())
    assert dra.act(world) == []
    world.expired = frozenset({keys.DRA_DRIVER})
    assert dra.act(world) == [Withdraw("node-0-gpu.nvidia.com")]


def test_a_sick_gpu_is_left_claimable_unless_the_driver_looks() -> None:
    sick = {"count": 2, "annotations": {keys.UNHEALTHY: "1"}, "operands": ("driver",)}
    world = node("27b8", **sick)
    assert device_plugin.act(world) == []
    assert not any("taints" in device for device in published(world).values())
    looks = make_pod("dra-2", dra.OPERAND, env={"FEATURE_GATES": "NVMLDeviceHealthCheck=true,"})
    world = node("27b8", **sick, runs=False, pods=(looks,))
    world.configs["uid-dra-2"] = Config("", data={"mig": "{}"})
    (noted,) = device_plugin.act(world)
    looks.unhealthy = noted.annotations[keys.UNHEALTHY]
    result = published(world)
    assert result["gpu-1"]["taints"] == [{"key": "gpu.nvidia.com/gpu-lost", "effect": "NoSchedule"}]
    assert "taints" not in result["gpu-0"]


def test_nothing_without_nvidias_driver() -> None:
    assert dra.act(node(operands=("nfd-worker",))) == []


def cutting(*pods: Any) -> World:
    labels = {keys.MIG_CONFIG: "all-1g.5gb", keys.MIG_STATE: "pending"}
    world = make_world("20f1", labels=labels, operands=("mig-manager", "driver", "toolkit"), pods=pods)
    world.configs["uid-mig-manager-1"] = Config("")
    return world


def test_gpus_that_are_claimed_are_not_cut_again() -> None:
    world = cutting()
    world.claims = (Claim("lab", "train-gpu-x", "node-0", ("gpu-0",), ("lab/train",)),)
    labelled, event = mig_manager.act(world)
    assert "In use by another client: lab/train" in event.message
    assert labelled.labels[keys.MIG_STATE] == "failed"


def test_a_gpu_is_cut_once_a_driver_that_waits_for_it_has_gone() -> None:
    goes = make_pod("dra-2", dra.OPERAND)
    goes.template = replace(goes.template, needs_mig_state=True)
    assert mig_manager.act(cutting(goes)) == []
    assert mig_manager.act(cutting(make_pod("dra-1", dra.OPERAND))) != []


def claim(node: str = "a", driver: str = keys.DRA_DRIVER, name: str = "c") -> dict[str, Any]:
    results = [{"driver": driver, "pool": node, "device": "gpu-0", "request": "gpu"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"name": "p", "uid": "u"}]}
    return {"metadata": {"namespace": "lab", "name": name}, "status": status}


def test_claims_are_known_by_the_node_of_their_devices() -> None:
    reported: list[str] = []
    known = ClaimStore(reported.extend)
    known.put_claim({"metadata": {"namespace": "lab", "name": "c"}})  # not allocated yet
    known.put_claim(claim(driver="nic.example.org", name="d"))
    assert (reported, known.claims_on("a")) == ([], ())
    known.put_claim(claim())
    assert known.claims_on("a") == (Claim("lab", "c", "a", ("gpu-0",), ("lab/p",)),)
    known.put_claim(claim(node="b"))
    assert (known.claims_on("a"), len(known.claims_on("b"))) == ((), 1)
    known.put_claim(claim(), gone=True)
    assert known.claims_on("b") == ()
    assert reported == ["a", "a", "b", "b"]


def test_an_older_slice_replaces_no_newer_one() -> None:
    reported: list[str] = []
    known = ClaimStore(reported.extend)

    def raw(version: int, generation: int) -> dict[str, Any]:
        spec = {"nodeName": "a", "pool": {"generation": generation}}
        return {"metadata": {"name": "a-x", "resourceVersion": str(version)}, "spec": spec}

    known.put_slice(raw(5, 2))
    known.put_slice(raw(4, 1))
    assert known.slices["a"].generation == 2
    known.put_slice({"metadata": {"name": "a-x"}}, gone=True)
    assert (known.slices, reported) == ({}, ["a", "a"])


META: dict[str, Any] = {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7"}


def read(annotations: dict[str, str] | None = None, labels: dict[str, str] | None = None, **spec: Any) -> Pod:
    limits = {"nvidia.com/gpu": "1", "cpu": "4"}
    meta = META | {"creationTimestamp": "t", "annotations": annotations or {}, "labels": labels or {}}
    plain = {
        "containers": [{"name": "main", "image": "x", "resources": {"limits": limits}}],
        "volumes": [{"name": "c", "configMap": {"name": "app"}}, {"name": "s", "emptyDir": {}}],
    }
    pod = parse_pod({"metadata": meta, "spec": plain | spec, "status": {"phase": "Running"}})
    assert pod
    return pod


def test_a_pod_that_says_what_memory_it_wants_may_fail_by_container() -> None:
    pod = read({keys.MEMORY: "all", keys.MEMORY_HELD: "12", keys.LOAD: "0.5"})
    assert (pod.memory, pod.held, pod.load) == ("all", "12", "0.5")
    assert pod.template.containers == (("main", "x"),)
    assert pod.template.config_map == ""  # ConfigMaps of other pods are not kept


def test_plain_pods_with_the_same_containers_share_one_template() -> None:
    pods = [read(labels={"app": app}) for app in ("web", "gpuform-trial")]
    assert pods[0].template is pods[1].template
    assert [pod.trial for pod in pods] == [False, True]


def test_the_dra_drivers_pods_are_operands_of_another_chart() -> None:
    labels = {keys.PART_OF: "dra-driver-sim", keys.OPERAND: keys.DRA_OPERAND}
    result = read(labels=labels)
    assert (result.operand, result.template.needs_mig_state) == (keys.DRA_OPERAND, False)
    term = {"matchExpressions": [{"key": keys.MIG_STATE, "operator": "In", "values": ["success"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    assert read(labels=labels, affinity={"nodeAffinity": required}).template.needs_mig_state


def test_a_node_keeps_the_simulators_own_annotations() -> None:
    annotations = {keys.UNHEALTHY: "1", "other.example.org/note": "x"}
    read_node = parse_node({"metadata": {**META, "annotations": annotations}, "spec": {}, "status": {}})
    assert read_node.annotations == {keys.UNHEALTHY: "1"}


def test_whole_thousands_of_shares_are_read_as_the_api_server_writes_them() -> None:
    status = {"allocatable": {"nvidia.com/gpu.shared": "1k"}}
    read_node = parse_node({"metadata": META, "spec": {}, "status": status})
    assert read_node.allocatable == {"nvidia.com/gpu.shared": 1000}
