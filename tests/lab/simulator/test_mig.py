"""The table of GPUs against the planner's, MIG geometry against a brute force, and the MIG manager."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from infra.model.gpu import models
from lab.simulator import device_plugin, keys, mig_manager
from lab.simulator.actions import Delete, NodeMeta
from lab.simulator.hardware import GPUS, Mig, device_filter
from lab.simulator.mig_geometry import DoesNotFit, count_profiles, max_instances, place
from lab.simulator.world import BrokenConfig, Config
from tests.external import mig_layouts
from tests.lab.simulator.worlds import CERN, GPU, MIG, OPERANDS, SEVEN, cut, make_pod, make_world
from tests.mig_layouts import layouts

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


def spec(**configs: dict[str, int] | None) -> Config:
    entries = {
        name: [{"devices": "all", "mig-enabled": layout is not None, "mig-devices": layout or {}}]
        for name, layout in configs.items()
    }
    return Config("", data={"version": "v1", "mig-configs": entries})


CONFIGS = spec(off=None, cern={"3g.20gb": 1, "2g.10gb": 2}, trap={"3g.20gb": 2, "1g.5gb": 1})
ON = {f"{keys.DEPLOY}{client}": "true" for client in mig_manager.CLIENTS}
OFF = dict.fromkeys(ON, mig_manager.PAUSED)
PENDING = {keys.MIG_STATE: "pending", **OFF}
READY = ("driver", "toolkit", "mig-manager")


def parted(wanted: str, configs: Any = CONFIGS, **given: Any) -> Any:
    """A node with paused operands and a layout that the MIG manager must apply."""
    labels = {keys.MIG_CONFIG: wanted, **given.pop("labels", PENDING)}
    world = make_world(**{"gpu": "20b0", "operands": READY, **given}, labels=labels)
    world.configs["uid-mig-manager-1"] = configs
    return world


def step(wanted: str, configs: Any = CONFIGS, **given: Any) -> list[Any]:
    return list(mig_manager.act(parted(wanted, configs, **given)))


def test_clients_are_paused_first_and_waited_for() -> None:
    first = step("cern", labels=ON, operands=OPERANDS)
    assert first == [NodeMeta("mig-manager", {keys.MIG_STATE: "pending", **OFF})]
    assert step("cern", operands=OPERANDS) == []


def test_cern_layout_is_applied_and_clients_come_back() -> None:
    validator = make_pod("v", "validator")
    deleted, done = step("cern", pods=(validator,))
    assert deleted == Delete(validator)
    assert done.labels == {**ON, keys.MIG_STATE: "success"}
    assert done.annotations == {keys.MIG_DONE: "cern by uid-mig-manager-1", **cut(CERN)}


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
    assert meta.labels == {**ON, keys.MIG_STATE: "failed"}
    assert keys.MIG_LAYOUT not in meta.annotations
    assert (event.reason, event.component) == ("MIGConfigFailed", "nvidia-mig-manager")
    assert event.message.startswith(f"nvidia.com/mig.config={wanted}: ")
    assert message in event.message


def test_a_processed_label_and_a_layout_that_is_there_change_nothing() -> None:
    failed = {**ON, keys.MIG_STATE: "failed"}
    assert step("trap", labels=failed, annotations={keys.MIG_DONE: "trap by uid-mig-manager-1"}) == []
    again = step("cern", labels=failed, annotations={keys.MIG_DONE: "cern by the pod before"})
    assert again, "a MIG manager that starts reads the label, which may have failed with earlier layouts"
    (meta,) = step("off", labels=ON)
    assert meta.labels == {keys.MIG_STATE: "success"}


HALF = Config(
    "",
    data={
        "mig-configs": {
            "half": [
                {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
                {"devices": [2, 3, 9], "mig-enabled": False},
            ]
        }
    },
)


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
    entry = {"devices": [1], "mig-enabled": True, "mig-devices": {"7g.40gb": 1}}
    other = {**entry, "device-filter": "0x20B210DE", "devices": "all"}
    (meta,) = step("second", Config("", data={"mig-configs": {"second": [entry, other]}}), count=2)
    assert meta.annotations[keys.MIG_LAYOUT] == '{"1": ["7g.40gb@0"]}'
