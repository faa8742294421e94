"""The GPUs' table against the planner's, MIG geometry against a brute force, the MIG manager, reboots."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from infra.model.gpu import models
from lab.simulator import device_plugin, keys, mig_manager, power
from lab.simulator.actions import Delete, Event, Later, NodeMeta, Power
from lab.simulator.hardware import GPUS, Mig, device_filter
from lab.simulator.mig_geometry import DoesNotFit, count_profiles, max_instances, place
from lab.simulator.reconciler import OPERANDS as ACTING
from lab.simulator.reconciler import acting_operands
from lab.simulator.world import BrokenConfig, Config, parse_layout
from tests.build.mig_layouts import layouts
from tests.external import mig_layouts
from tests.lab.simulator.worlds import CERN, GPU, MIG, OPERANDS, SEVEN, cut, make_pod, make_world

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", models.GPUS)
def test_planner_and_simulator_agree(name: str) -> None:
    planned = models.GPUS[name]
    vendor, _, device = planned.pci.partition(":")
    assert vendor == "10de"
    ours = GPUS[device]
    assert ours.product.replace(" ", "-") == planned.product
    assert (ours.memory_mib, ours.compute) == (planned.memory_mib, planned.compute)
    assert ours.family == planned.family
    assert ours.last_branch == planned.driver.last
    assert device_filter(device) == planned.device_filter
    profiles = ours.mig.profiles if ours.mig else {}
    theirs = planned.geometry.profiles if planned.geometry else ()
    assert {n: (p.compute, p.memory_slices, p.starts, p.media) for n, p in profiles.items()} == {
        p.name: (p.compute, p.memory, p.starts, p.media) for p in theirs
    }


def mig_of(device: str) -> Mig:
    mig = GPUS[device].mig
    assert mig is not None
    return mig


# tests/checks/test_geometry.py compares the planner's profiles and layouts with go-nvml's mocks.
@pytest.mark.parametrize(("device", "number"), [("20b0", 77), ("20b7", 9)])
def test_search_finds_every_layout_that_the_planner_knows(device: str, number: int) -> None:
    mig = mig_of(device)
    possible = layouts(next(gpu.geometry for gpu in models.GPUS.values() if gpu.pci == f"10de:{device}"))
    result = 0
    plain = [name for name in mig.profiles if "+" not in name]
    for counts in itertools.product(*(range(max_instances(mig, name) + 2) for name in plain)):
        layout = {name: count for name, count in zip(plain, counts, strict=True) if count}
        fits = tuple(sorted(layout.items())) in possible
        try:
            assert count_profiles(place(mig, layout)) == layout
            assert fits or not layout, layout
            result += fits
        except DoesNotFit:
            assert not fits, layout
    assert result == number


REFUSED = [
    ({"3g.40gb": 1}, "this GPU has no profile 3g.40gb; it has 1g.5gb, 1g.10gb"),
    ({"1g.5gb+me": 2}, "at most one instance can have the media engines, 2 request them"),
    ({"4g.20gb": 1, "2g.10gb": 2}, "needs more than 7 compute slices"),
    # 7 of 7 compute slices, but more memory slices than there are.
    ({"3g.20gb": 2, "1g.5gb": 1}, r"1x 1g.5gb \+ 2x 3g.20gb does not fit into the placements of 8"),
]


@pytest.mark.parametrize(("layout", "message"), REFUSED)
def test_refused_layouts(layout: dict[str, int], message: str) -> None:
    with pytest.raises(DoesNotFit, match=message):
        place(mig_of("20b0"), layout)


def test_every_layout_that_nvidia_ships_for_our_devices_fits() -> None:
    tried = 0
    for entries in mig_layouts().values():
        for entry in entries:
            filters = entry.get("device-filter", [])
            for device in GPUS:
                if device_filter(device) in filters:
                    place(mig_of(device), entry["mig-devices"])
                    tried += 1
    assert tried >= 14


def test_generated_layouts_are_those_that_nvidia_ships() -> None:
    shipped = mig_layouts()
    for device in ("20b0", "2330", "20b7", "2901"):
        for name, entries in mig_manager.generated_configs(make_world(gpu=device)).items():
            ours = entries[0].get("mig-devices", {})
            filtered = [e for e in shipped[name] if device_filter(device) in e.get("device-filter", [])]
            assert ours == (filtered or shipped[name])[0].get("mig-devices", {}), (device, name)


def entry(**profiles: int) -> dict[str, Any]:
    """One entry of a configuration for all devices; without profiles MIG is off."""
    return {"devices": "all", "mig-enabled": bool(profiles), "mig-devices": profiles}


def parsed(**configs: list[dict[str, Any]]) -> Config:
    return Config("", data={"version": "v1", "mig-configs": configs})


CERN_LAYOUT, TRAP = entry(**{"3g.20gb": 1, "2g.10gb": 2}), entry(**{"3g.20gb": 2, "1g.5gb": 1})
CONFIGS = parsed(off=[entry()], cern=[CERN_LAYOUT], trap=[TRAP])
HALF = parsed(
    half=[{**entry(**{"1g.5gb": 7}), "devices": [0, 1]}, {"devices": [2, 3, 9], "mig-enabled": False}]
)
ON = {f"{keys.DEPLOY}{client}": "true" for client in mig_manager.CLIENTS}
OFF = dict.fromkeys(ON, mig_manager.PAUSED)
PENDING = {keys.MIG_STATE: "pending", **OFF}
SUCCESS, FAILED = ({**ON, keys.MIG_STATE: state} for state in ("success", "failed"))


def parted(wanted: str, configs: Any = CONFIGS, reboots: str = "", **given: Any) -> Any:
    """A node with paused operands and a layout that the MIG manager must apply."""
    labels = {keys.MIG_CONFIG: wanted, **given.pop("labels", PENDING)}
    world = make_world(**{"gpu": "20b0", "operands": OPERANDS[1:3], **given}, labels=labels)
    world.pods.append(make_pod("manager", "mig-manager", env={"WITH_REBOOT": reboots} if reboots else {}))
    world.configs["uid-manager"] = configs
    return world


def step(wanted: str, configs: Any = CONFIGS, **given: Any) -> list[Any]:
    return list(mig_manager.act(parted(wanted, configs, **given)))


def test_clients_are_paused_first_and_waited_for() -> None:
    first = step("cern", labels=ON, operands=OPERANDS[:-1])
    assert first == [NodeMeta("mig-manager", {keys.MIG_STATE: "pending", **OFF})]
    assert step("cern", operands=OPERANDS[:-1]) == []


def test_cern_layout_is_applied_and_clients_come_back() -> None:
    validator = make_pod("v", "validator")
    deleted, done = step("cern", pods=(validator,))
    assert deleted == Delete(validator)
    assert done.labels == SUCCESS
    assert done.annotations == {keys.MIG_DONE: "cern by uid-manager", **cut(CERN)}


FAILS = [
    ("nonsense", "20b0", CONFIGS, "selected mig-config not present: nonsense; present: cern, off, trap"),
    ("trap", "20b0", CONFIGS, "does not fit into the placements of 8 memory slices"),
    ("cern", "1eb8", CONFIGS, "MIG mode is not supported by this GPU"),
    ("cern", "20b2", CONFIGS, "this GPU has no profile"),
    ("cern", "20b0", BrokenConfig("unexpected field: mig-device"), "unexpected field: mig-device"),
    ("cern", "20b0", None, "In use by another client: default/train"),
]


@pytest.mark.parametrize(("wanted", "gpu", "configs", "message"), FAILS)
def test_failed_with_the_reason(wanted: str, gpu: str, configs: Any, message: str) -> None:
    train = () if configs else (make_pod("train", asks={GPU: 1}, devices="GPU-1"),)
    meta, event = step(wanted, configs or CONFIGS, gpu=gpu, pods=train)
    assert meta.labels == FAILED
    assert keys.MIG_LAYOUT not in meta.annotations
    assert (event.reason, event.component) == ("MIGConfigFailed", "nvidia-mig-manager")
    assert event.message.startswith(f"nvidia.com/mig.config={wanted}: ")
    assert message in event.message


def test_a_processed_label_and_a_layout_that_is_there_change_nothing() -> None:
    assert step("trap", labels=FAILED, annotations={keys.MIG_DONE: "trap by uid-manager"}) == []
    again = step("cern", labels=FAILED, annotations={keys.MIG_DONE: "cern by the pod before"})
    assert again, "a MIG manager that starts reads the label, which may have failed with earlier layouts"
    (meta,) = step("off", labels=ON)
    assert meta.labels == {keys.MIG_STATE: "success"}


def test_two_of_four_gpus_are_cut_while_a_third_is_in_use() -> None:
    world = parted("half", HALF, count=4)
    world.pods.append(make_pod("train", asks={GPU: 1}, devices=device_plugin.gpu_uuid(world, 3)))
    (meta,) = mig_manager.act(world)
    assert meta.labels[keys.MIG_STATE] == "success"
    assert set(json.loads(meta.annotations[keys.MIG_LAYOUT])) == {"0", "1"}
    world.pods[-1].devices = device_plugin.gpu_uuid(world, 1)
    failed, event = mig_manager.act(world)
    assert failed.labels[keys.MIG_STATE] == "failed"
    assert "In use by another client: default/train" in event.message


def test_a_gpu_that_is_as_it_should_be_is_left_with_its_pods() -> None:
    """Two entries for one GPU: the GPU that already matches keeps its instances."""
    world = parted("half", HALF, count=4, annotations=cut(SEVEN))
    held = device_plugin.mig_uuid(world, 0, "1g.5gb", 4)
    world.pods.append(make_pod("train", asks={MIG: 1}, devices=f"{held}::1"))
    (meta,) = mig_manager.act(world)
    assert meta.labels[keys.MIG_STATE] == "success"
    assert set(json.loads(meta.annotations[keys.MIG_LAYOUT])) == {"0", "1"}


def test_only_the_devices_that_are_named() -> None:
    other = {**entry(**{"7g.40gb": 1}), "device-filter": "0x20B210DE"}
    (meta,) = step("second", parsed(second=[{**other, "device-filter": [], "devices": [1]}, other]), count=2)
    assert meta.annotations[keys.MIG_LAYOUT] == '{"1": ["7g.40gb@0"]}'


CUT = cut(["7g.40gb@0"])


def stuck(wanted: str, reboots: str = "", **given: Any) -> list[Any]:
    """A step on a node with GPUs that cannot be reset."""
    notes = {keys.GPU_RESET: "no", **given.pop("annotations", {})}
    return step(wanted, reboots=reboots, annotations=notes, **given)


def test_without_a_reboot_the_layout_fails_and_the_instances_are_gone() -> None:
    meta, event = stuck("off", annotations=CUT)
    assert meta.labels == FAILED
    assert parse_layout(meta.annotations[keys.MIG_LAYOUT]) == {0: ()}
    assert event.message == (
        "nvidia.com/mig.config=off: error setting MIG mode: error resetting all GPUs: "
        "Resetting GPU 00000000:00:04.0 is not supported."
    )


def test_with_reboot_the_node_goes_and_the_operands_stay_paused() -> None:
    before = time.time()
    meta, off = stuck("cern", "true", annotations={keys.REBOOT_SECONDS: "60"})
    assert (meta.labels, off) == ({keys.MIG_STATE: "rebooting"}, Power(on=False))
    assert (meta.annotations[keys.MIG_PENDING], meta.annotations[keys.BOOTS]) == ("0", "1")
    assert 59 < float(meta.annotations[keys.DOWN_UNTIL]) - before < 65
    assert stuck("cern", "false")[0].labels[keys.MIG_STATE] == "failed"


@pytest.mark.parametrize(
    "given",
    [
        {"annotations": {keys.GPU_RESET: "yes"}},
        {"annotations": CUT},
        {"wanted": "h", "gpu": "2330", "configs": parsed(h=[entry(**{"1g.10gb": 7})])},
    ],
    ids=["the GPU can be reset", "the mode stays", "Hopper needs no reset"],
)
def test_with_reboot_a_node_does_not_reboot_without_need(given: dict[str, Any]) -> None:
    (meta,) = stuck(**{"wanted": "cern", "reboots": "true", **given})
    assert meta.labels[keys.MIG_STATE] == "success"
    assert keys.DOWN_UNTIL not in meta.annotations


def test_a_gpu_in_use_reboots_the_node_too() -> None:
    """The manager reboots if the mode cannot be changed, whatever the reason."""
    pod = make_pod("train", asks={GPU: 1}, devices="GPU-1")
    able: dict[str, Any] = {"pods": (pod,), "annotations": {keys.GPU_RESET: "yes"}}
    states = [stuck("cern", reboots, **able)[0].labels[keys.MIG_STATE] for reboots in ("true", "")]
    assert states == ["rebooting", "failed"]


def test_after_the_boot_it_makes_the_layout_or_fails_but_reboots_only_once() -> None:
    back = {**PENDING, keys.MIG_STATE: "rebooting"}
    meta, event = stuck("cern", "true", labels=back)
    assert meta.labels == FAILED
    assert "MIG mode change did not take effect after rebooting" in event.message
    (meta,) = stuck("cern", "true", labels=back, annotations=cut([]))
    assert meta == NodeMeta("mig-manager", {keys.MIG_STATE: "pending"})
    (meta,) = stuck("cern", "true", annotations=cut([]))
    assert meta.labels == SUCCESS


def away(seconds: float, gpu: str = "20b0", **annotations: str) -> Any:
    notes = {keys.DOWN_UNTIL: str(time.time() + seconds), keys.BOOTS: "1", **annotations}
    return make_world(gpu=gpu, count=2, annotations=notes)


def test_a_node_that_is_away_does_nothing_until_it_boots() -> None:
    assert acting_operands(make_world()) == ACTING
    assert acting_operands(away(60)) == (power.act,)
    assert power.act(away(60)) == [Later()]
    on, meta, event = power.act(away(-1))
    assert on == Power(on=True)
    gone = {key for key, value in meta.annotations.items() if value is None}
    assert gone == {keys.DOWN_UNTIL, keys.MIG_PENDING, keys.MIG_DONE}
    assert event == Event(None, "Rebooted", "Node node-0 has been rebooted, boot id: 1", "kubelet")


def test_a_boot_leaves_no_instance_and_on_hopper_no_mode() -> None:
    worlds = [away(-1, **CUT, **{keys.MIG_PENDING: pending}) for pending in ("", "1", "0")]
    worlds.append(away(-1, gpu="2330", **CUT))
    assert [power.layout_after_boot(world) for world in worlds] == [{0: ()}, {0: (), 1: ()}, {}, {}]


def pod(name: str, phase: str = "Running", **annotations: str) -> dict[str, Any]:
    notes = {f"simulator.gpuform.io/{key}": value for key, value in annotations.items()}
    status = {"phase": phase, "podIP": "10.0.0.1"}
    return {"metadata": {"name": name, "namespace": "a", "uid": name, "annotations": notes}, "status": status}


class Served:
    """An API server with these pods; keeps each patch by the object's name."""

    def __init__(self) -> None:
        self.patched: dict[str, Any] = {}

    async def pages(self, path: str, params: dict[str, str]) -> AsyncIterator[tuple[list[Any], str]]:
        assert (path, params) == ("/api/v1/pods", {"fieldSelector": "spec.nodeName=node-0"})
        operand, train = pod("operand", start="granted", config="{}"), pod("train", devices="GPU-1")
        yield [pod("gone"), operand, train, pod("plain"), pod("done", "Succeeded")], "1"

    async def patch(self, path: str, body: dict[str, Any], kind: str = "") -> dict[str, Any]:
        name = path.removeprefix("/api/v1/").removeprefix("namespaces/a/pods/")
        if name.startswith("gone"):
            request = httpx.Request("PATCH", "http://api")
            raise httpx.HTTPStatusError("", request=request, response=httpx.Response(404, request=request))
        self.patched[name] = body
        return body


def ready(body: dict[str, Any]) -> list[str]:
    return [condition["status"] for condition in body["status"]["conditions"] if condition["type"] == "Ready"]


def test_a_node_that_goes_is_unknown_and_its_pods_are_not_ready() -> None:
    server: Any = Served()
    asyncio.run(power.power_off(server, make_world().node))
    assert {name: ready(body) for name, body in server.patched.items()} == {
        "nodes/node-0/status": ["Unknown"],
        "operand/status": ["False"],
        "train/status": ["False"],
        "plain/status": ["False"],
    }


def test_a_node_that_is_back_starts_its_pods_except_those_with_devices() -> None:
    server: Any = Served()
    assert len(asyncio.run(power.power_on(server, make_world().node))) == 3
    patched = server.patched
    assert set(patched) == {"operand", "operand/status", "train/status", "plain/status"}
    assert patched["operand"]["metadata"]["annotations"][keys.START] == "waits"
    assert patched["operand/status"]["status"]["phase"] == "Pending"
    assert patched["operand/status"]["status"]["podIP"] is None, "kwok starts pods without an address"
    assert patched["train/status"]["status"]["reason"] == "UnexpectedAdmissionError"
    assert ready(patched["plain/status"]) == ["True"]
