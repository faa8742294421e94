"""MIG mode on GPUs that cannot be reset, as mig-parted 0.15 does it: a reboot, or a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from lab.simulator import keys, mig_manager, power
from lab.simulator.actions import Event, Later, NodeMeta, Power
from lab.simulator.reconciler import OPERANDS, acting_operands
from lab.simulator.world import Config, parse_layout
from tests.lab.simulator.test_mig import CONFIGS, ON, PENDING, READY
from tests.lab.simulator.worlds import cut, make_pod, make_world

pytestmark = pytest.mark.unit

CUT = cut(["7g.40gb@0"])


def step(wanted: str, reboots: str = "", **given: Any) -> list[Any]:
    """The MIG manager's next step on a node with GPUs that cannot be reset."""
    manager = make_pod("mig", "mig-manager", env={"WITH_REBOOT": reboots} if reboots else {})
    labels = {keys.MIG_CONFIG: wanted, **given.pop("labels", PENDING)}
    notes = {keys.GPU_RESET: "no", **given.pop("annotations", {})}
    world = make_world(gpu=given.pop("gpu", "20b0"), labels=labels, annotations=notes, operands=READY[:2])
    world.pods += [manager, *given.pop("pods", ())]
    world.configs["uid-mig"] = given.pop("configs", CONFIGS)
    return mig_manager.act(world)


def test_without_a_reboot_the_layout_fails_and_the_instances_are_gone() -> None:
    meta, event = step("off", annotations=CUT)
    assert meta.labels == {**ON, keys.MIG_STATE: "failed"}
    assert parse_layout(meta.annotations[keys.MIG_LAYOUT]) == {0: ()}
    assert event.message == (
        "nvidia.com/mig.config=off: error setting MIG mode: error resetting all GPUs: "
        "Resetting GPU 00000000:00:04.0 is not supported."
    )


def test_with_reboot_the_node_goes_and_the_operands_stay_paused() -> None:
    before = time.time()
    meta, off = step("cern", "true", annotations={keys.REBOOT_SECONDS: "60"})
    assert (meta.labels, off) == ({keys.MIG_STATE: "rebooting"}, Power(on=False))
    assert (meta.annotations[keys.MIG_PENDING], meta.annotations[keys.BOOTS]) == ("0", "1")
    assert 59 < float(meta.annotations[keys.DOWN_UNTIL]) - before < 65
    assert step("cern", "false")[0].labels[keys.MIG_STATE] == "failed"


HOPPER = Config(
    "", data={"mig-configs": {"h": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]}}
)


@pytest.mark.parametrize(
    "given",
    [
        {"annotations": {keys.GPU_RESET: "yes"}},
        {"annotations": CUT},
        {"wanted": "h", "gpu": "2330", "configs": HOPPER},
    ],
    ids=["the GPU can be reset", "the mode stays", "Hopper needs no reset"],
)
def test_with_reboot_a_node_does_not_reboot_without_need(given: dict[str, Any]) -> None:
    (meta,) = step(**{"wanted": "cern", "reboots": "true", **given})
    assert meta.labels[keys.MIG_STATE] == "success"
    assert keys.DOWN_UNTIL not in meta.annotations


def test_a_gpu_in_use_reboots_the_node_too() -> None:
    """The manager reboots if the mode cannot be changed, whatever the reason."""
    pod = make_pod("train", asks={"nvidia.com/gpu": 1}, devices="GPU-1")
    able: dict[str, Any] = {"pods": (pod,), "annotations": {keys.GPU_RESET: "yes"}}
    meta, _ = step("cern", "true", **able)
    assert meta.labels == {keys.MIG_STATE: "rebooting"}
    meta, _ = step("cern", **able)
    assert meta.labels[keys.MIG_STATE] == "failed"


def test_after_the_boot_it_makes_the_layout_or_fails_but_reboots_only_once() -> None:
    back = {**PENDING, keys.MIG_STATE: "rebooting"}
    meta, event = step("cern", "true", labels=back)
    assert meta.labels == {**ON, keys.MIG_STATE: "failed"}
    assert "MIG mode change did not take effect after rebooting" in event.message
    objects = cut([])
    assert step("cern", "true", labels=back, annotations=objects) == [
        NodeMeta("mig-manager", {keys.MIG_STATE: "pending"})
    ]
    (meta,) = step("cern", "true", annotations=objects)
    assert meta.labels == {**ON, keys.MIG_STATE: "success"}


def away(seconds: float, gpu: str = "20b0", **annotations: str) -> Any:
    notes = {keys.DOWN_UNTIL: str(time.time() + seconds), keys.BOOTS: "1", **annotations}
    return make_world(gpu=gpu, count=2, annotations=notes)


def test_a_node_that_is_away_does_nothing_until_it_boots() -> None:
    assert acting_operands(make_world()) == OPERANDS
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
