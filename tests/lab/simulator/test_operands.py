"""Order of the operands, why they crash-loop, and the labels of operator and NFD."""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import driver, gfd, keys, operands
from lab.simulator.actions import Action, Annotate, Crash, Create, Delete, Event, NodeMeta, Recover
from lab.simulator.world import Broken, Cluster, Config
from tests.lab.simulator.worlds import make_pod, make_world

pytestmark = pytest.mark.unit


def waiting(operand: str, **fields: Any) -> Any:
    return make_pod(f"{operand}-w", operand, start="waits", phase="Pending", ready=False, **fields)


def acts(pod: Any, config: Any = None, running: tuple[str, ...] = ("driver",), **given: Any) -> list[Action]:
    """Actions on a node with the running operands and this pod, which has this configuration."""
    world = make_world(operands=running, pods=(pod,), **given)
    world.configs |= {pod.uid: config} if config else {}
    return operands.act(world)


def starts(pod: Any) -> Annotate:
    return Annotate(pod, {keys.START: "granted"}, "starts")


def test_starts_after_what_it_needs() -> None:
    pod = waiting("toolkit", after=("driver",))
    assert (acts(pod, running=()), acts(pod)) == ([], [starts(pod)])


def test_cern_v100_needs_an_older_driver() -> None:
    pod, older = waiting("driver"), waiting("driver", image="x/driver:580.126.09")
    text = "driver 595.91.07 does not support Tesla V100-SXM2-16GB: R580 is the last branch that does"
    assert acts(pod, running=(), gpu="1db1") == [Crash(pod, "driver", text)]
    assert acts(older, running=(), gpu="1db1") == [starts(older)]


def test_an_unknown_label_crash_loops_the_plugin_until_it_is_right() -> None:
    unknown, read = Broken("no x", manager=True), Config("slice-4", "time-slicing", {"version": "v1"})
    new, old = waiting("device-plugin"), make_pod("p", "device-plugin")
    assert acts(new, unknown) == [Crash(new, "config-manager-init", "no x")]
    assert acts(old, unknown) == [Crash(old, "config-manager", "no x")]
    old.crash = "no x"
    assert acts(old, unknown) == []
    noted = Annotate(old, {keys.LOADED: read.stored()}, 'reads configuration "slice-4"')
    assert acts(old, read) == [Recover(old), noted]


def test_missing_config_map_is_a_failed_mount() -> None:
    pod = waiting("gfd")
    missing = Broken('configmap "x" not found', mount=True)
    assert acts(pod, missing) == [Event(pod, "FailedMount", 'configmap "x" not found', "kubelet")]


def test_validator_waits_for_its_cuda_job() -> None:
    pod = waiting("validator", after=("driver", "device-plugin"))
    world = make_world(operands=("driver", "device-plugin"), pods=(pod,))
    assert operands.act(world) == []
    (created,) = operands.validate(world)
    assert isinstance(created, Create)
    assert created.manifest["metadata"]["annotations"] == {keys.RUN_ONCE: "true"}
    assert created.manifest["spec"]["nodeName"] == "node-0"
    world.pods.append(make_pod("job", "cuda-validator", phase="Succeeded", ready=False, start=""))
    assert (operands.validate(world), operands.act(world)) == ([], [starts(pod)])


DEPLOYED = {f"{keys.DEPLOY}{name}": "true" for name in driver.CLIENTS}
PAUSED = dict.fromkeys(DEPLOYED, driver.PAUSED)
OLD = {keys.DRIVER_LABEL: "580.126.09"}


def test_operands_are_paused_before_another_driver_is_loaded() -> None:
    busy = ("toolkit", "device-plugin")
    world = make_world(labels={**OLD, **DEPLOYED}, operands=busy, pods=(waiting("driver"),))
    assert [a for a in operands.act(world) if isinstance(a, NodeMeta)] == [NodeMeta("driver-manager", PAUSED)]
    world = make_world(labels={**OLD, **PAUSED}, operands=busy, pods=(waiting("driver"),))
    assert [a for a in operands.act(world) if isinstance(a, NodeMeta | Annotate)] == []
    job = make_pod("job", "cuda-validator", phase="Succeeded", start="")
    new = waiting("driver")
    world = make_world(labels={**OLD, **PAUSED}, operands=(), pods=(new, job))
    assert operands.act(world) == [
        Delete(job),
        NodeMeta("driver-manager", DEPLOYED),
        starts(new),
    ]


@pytest.mark.parametrize("loaded", [{}, {keys.DRIVER_LABEL: "595.91.07"}])
def test_a_first_driver_and_the_same_again_pause_nothing(loaded: dict[str, str]) -> None:
    new = waiting("driver")
    world = make_world(labels={**loaded, **DEPLOYED}, operands=("toolkit",), pods=(new,))
    assert starts(new) in operands.act(world)


def labelled(**given: Any) -> dict[str, str | None]:
    """The labels that the operator changes; {} if it changes nothing."""
    return labels_of(operands.label(make_world(**given)))


def labels_of(actions: list[Action]) -> dict[str, str | None]:
    assert all(isinstance(action, NodeMeta) for action in actions)
    return {key: value for action in actions for key, value in action.labels.items()}


def test_operator_labels_a_gpu_node() -> None:
    labels = labelled()
    assert labels.pop(keys.PRESENT) == "true"
    assert labels.keys() == {
        f"nvidia.com/gpu.deploy.{name}"
        for name in (
            "driver",
            "container-toolkit",
            "device-plugin",
            "gpu-feature-discovery",
            "dcgm",
            "dcgm-exporter",
            "node-status-exporter",
            "operator-validator",
        )
    }


def test_mig_manager_only_on_mig_capable_nodes_and_labels_of_others_stay() -> None:
    capable = {keys.MIG_CAPABLE: "true"}
    labels = labelled(gpu="20b0", labels=capable)
    assert (labels[f"{keys.DEPLOY}mig-manager"], labels[keys.MIG_CONFIG]) == ("true", "all-disabled")
    others = {f"{keys.DEPLOY}device-plugin": "paused-for-mig-change", keys.MIG_CONFIG: "cern"}
    assert not labelled(labels={**capable, **others}).keys() & others.keys()


def test_operator_away_changes_nothing_uninstalled_takes_all_back() -> None:
    mine = {keys.PRESENT: "true", f"{keys.DEPLOY}driver": "true", "nvidia.com/gpu.product": "Tesla-T4"}
    every = {**mine, keys.PLUGIN_CONFIG: "slice-4", keys.MIG_CONFIG: "cern"}
    assert labelled(labels=every, cluster=Cluster(operator_installed=True)) == {}
    assert labelled(labels=every, cluster=Cluster()) == dict.fromkeys(mine)


def test_a_node_that_shows_no_gpu_loses_even_what_others_have_set() -> None:
    """As NVIDIA's operator does: a node must start with the label that NFD would give it."""
    off = {f"{keys.DEPLOY}device-plugin": "false"}
    assert labelled(gpu="", labels={keys.PCI_PRESENT: "false"}) == {}
    assert labelled(labels={**off, keys.PCI_PRESENT: "false"}) == dict.fromkeys(off)
    born = {**off, keys.PCI_PRESENT: "true"}
    assert not labelled(labels=born).keys() & born.keys()
    assert labelled(labels=born, cluster=Cluster()) == {}
    assert gfd.features(make_world(labels=born, cluster=Cluster())) == []


def test_nfd_sees_the_pci_bus() -> None:
    seen = gfd.features(make_world(labels={keys.PCI_PRESENT: "false"}))
    assert labels_of(seen)[keys.PCI_PRESENT] == "true"
    assert gfd.features(make_world(operands=())) == []
    plain = gfd.features(make_world(gpu="", labels={keys.PCI_PRESENT: "true"}))
    assert labels_of(plain)[keys.PCI_PRESENT] is None
