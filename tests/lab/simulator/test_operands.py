"""Order of the operands, why they crash-loop, and the labels of operator and NFD."""

from __future__ import annotations

from typing import Any

import pytest

from lab.simulator import keys, nfd, operands, operator, validator
from lab.simulator.actions import Annotate, Crash, Create, Event, NodeMeta, Recover
from lab.simulator.world import Broken, Cluster, Config

pytestmark = pytest.mark.unit


def waiting(make_pod: Any, operand: str, **fields: Any) -> Any:
    return make_pod(f"{operand}-w", operand, start="waits", phase="Pending", ready=False, **fields)


def test_starts_after_what_it_needs(make_world: Any, make_pod: Any) -> None:
    pod = waiting(make_pod, "toolkit", after=("driver",))
    assert operands.act(make_world(operands=(), pods=(pod,))) == []
    (action,) = operands.act(make_world(operands=("driver",), pods=(pod,)))
    assert action == Annotate(pod, {keys.START: "granted"}, "starts")


def test_cern_v100_needs_an_older_driver(make_world: Any, make_pod: Any) -> None:
    pod = waiting(make_pod, "driver")
    world = make_world(gpu="1db1", operands=(), pods=(pod,))
    text = "driver 595.91.07 does not support Tesla V100-SXM2-16GB: R580 is the last branch that does"
    assert operands.act(world) == [Crash(pod, "driver", text)]
    older = waiting(make_pod, "driver", image="x/driver:580.126.09")
    (action,) = operands.act(make_world(gpu="1db1", operands=(), pods=(older,)))
    assert isinstance(action, Annotate)


def test_unknown_label_crash_loops_a_new_plugin(make_world: Any, make_pod: Any) -> None:
    pod = waiting(make_pod, "device-plugin")
    world = make_world(pods=(pod,), operands=("driver",))
    world.configs[pod.uid] = Broken("specified config slice-9 does not exist", manager=True)
    text = "specified config slice-9 does not exist"
    assert operands.act(world) == [Crash(pod, "config-manager-init", text)]


def test_unknown_label_crash_loops_a_running_plugin_once(make_world: Any, make_pod: Any) -> None:
    pod = make_pod("p", "device-plugin")
    world = make_world(pods=(pod,), operands=("driver",))
    world.configs[pod.uid] = Broken("specified config x does not exist", manager=True)
    assert operands.act(world) == [Crash(pod, "config-manager", "specified config x does not exist")]
    pod.crash = "specified config x does not exist"
    assert operands.act(world) == []


def test_right_label_brings_it_back_and_is_noted(make_world: Any, make_pod: Any) -> None:
    pod = make_pod("p", "device-plugin", crash="specified config x does not exist")
    world = make_world(pods=(pod,), operands=("driver",))
    read = Config("slice-4", "time-slicing", {"version": "v1"})
    world.configs[pod.uid] = read
    recovered, noted = operands.act(world)
    assert recovered == Recover(pod)
    assert noted == Annotate(pod, {keys.LOADED: read.stored()}, 'reads configuration "slice-4"')


def test_missing_config_map_is_a_failed_mount(make_world: Any, make_pod: Any) -> None:
    pod = waiting(make_pod, "gfd")
    world = make_world(pods=(pod,), operands=("driver",))
    world.configs[pod.uid] = Broken('configmap "x" not found', mount=True)
    assert operands.act(world) == [Event(pod, "FailedMount", 'configmap "x" not found', "kubelet")]


def test_validator_waits_for_its_cuda_job(make_world: Any, make_pod: Any) -> None:
    pod = waiting(make_pod, "validator", after=("driver", "device-plugin"))
    world = make_world(operands=("driver", "device-plugin"), pods=(pod,))
    assert operands.act(world) == []
    (created,) = validator.act(world)
    assert isinstance(created, Create)
    assert created.manifest["metadata"]["annotations"] == {keys.RUN_ONCE: "true"}
    assert created.manifest["spec"]["nodeName"] == "node-0"
    world.pods.append(make_pod("job", "cuda-validator", phase="Succeeded", ready=False, start=""))
    assert validator.act(world) == []
    (started,) = operands.act(world)
    assert isinstance(started, Annotate)


def labels_of(actions: list[Any]) -> dict[str, str | None]:
    (action,) = actions
    assert isinstance(action, NodeMeta)
    return action.labels


def test_operator_labels_a_gpu_node(make_world: Any) -> None:
    labels = labels_of(operator.act(make_world()))
    assert labels[keys.PRESENT] == "true"
    assert {k for k in labels if k.startswith(keys.DEPLOY)} == {
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


def test_mig_manager_only_where_gfd_says_mig_capable(make_world: Any) -> None:
    labels = labels_of(operator.act(make_world(gpu="20b0", labels={keys.MIG_CAPABLE: "true"})))
    assert labels["nvidia.com/gpu.deploy.mig-manager"] == "true"
    assert labels[keys.MIG_CONFIG] == "all-disabled"


def test_operator_leaves_what_others_have_set(make_world: Any) -> None:
    set_by_others = {"nvidia.com/gpu.deploy.device-plugin": "paused-for-mig-change", keys.MIG_CONFIG: "cern"}
    labels = labels_of(operator.act(make_world(labels={keys.MIG_CAPABLE: "true", **set_by_others})))
    assert not labels.keys() & set_by_others.keys()


def test_no_gpu_no_operands(make_world: Any) -> None:
    assert operator.act(make_world(gpu="", labels={keys.PCI_PRESENT: "false"})) == []


def test_operator_away_changes_nothing_uninstalled_takes_all_back(make_world: Any) -> None:
    mine = {keys.PRESENT: "true", f"{keys.DEPLOY}driver": "true", "nvidia.com/gpu.product": "Tesla-T4"}
    yours = {keys.PLUGIN_CONFIG: "slice-4", keys.MIG_CONFIG: "cern"}
    away = Cluster(operator_installed=True)
    assert operator.act(make_world(labels={**mine, **yours}, cluster=away)) == []
    gone = labels_of(operator.act(make_world(labels={**mine, **yours}, cluster=Cluster())))
    assert gone == dict.fromkeys(mine)


def test_a_node_that_shows_no_gpu_loses_even_what_others_have_set(make_world: Any) -> None:
    """As NVIDIA's operator does: a node must start with the label that NFD would give it."""
    off = {f"{keys.DEPLOY}device-plugin": "false"}
    gone = labels_of(operator.act(make_world(labels={**off, keys.PCI_PRESENT: "false"})))
    assert gone == dict.fromkeys(off)
    born = {**off, keys.PCI_PRESENT: "true"}
    assert not labels_of(operator.act(make_world(labels=born))).keys() & born.keys()
    assert operator.act(make_world(labels=born, cluster=Cluster())) == []
    assert nfd.act(make_world(labels=born, cluster=Cluster())) == []


def test_nfd_sees_the_pci_bus(make_world: Any) -> None:
    world = make_world(labels={keys.PCI_PRESENT: "false"})
    assert labels_of(nfd.act(world))[keys.PCI_PRESENT] == "true"
    assert nfd.act(make_world(operands=())) == []
    plain = labels_of(nfd.act(make_world(gpu="", labels={keys.PCI_PRESENT: "true"})))
    assert plain[keys.PCI_PRESENT] is None
