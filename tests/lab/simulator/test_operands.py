"""Order of the operands, why they crash-loop, labels of operator, NFD and GFD; NVIDIA's own operator.

CERN's list of labels is typed here again from the webinar's slides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.simulator import gfd, keys, operands, real_operator
from lab.simulator.actions import Action, Annotate, Crash, Create, Event, NodeMeta, PublishFeature, Recover
from lab.simulator.objects import parse_pod
from lab.simulator.world import BrokenConfig, Cluster, Config
from tests.lab.simulator.worlds import CERN, MIG, RUNNING, SEVEN, cut, make_pod, make_world, mps, sliced

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


def test_a_pod_of_the_validator_is_the_gate_for_what_is_behind_the_toolkit() -> None:
    """Also one that waits for ever, as on a node without a device plugin."""
    pod = waiting("gfd", after=("driver", "validator"))
    world = make_world(operands=("driver",), pods=(pod,))
    assert operands.act(world) == []
    world.pods.append(waiting("validator", after=("device-plugin",)))
    assert operands.act(world) == [starts(pod)]
    world.pods.append(waiting("toolkit", after=("driver", "never")))
    assert operands.act(world) == [], "the validator itself waits for the toolkit"


def test_cern_v100_needs_an_older_driver() -> None:
    pod, older = waiting("driver"), waiting("driver", image="x/driver:580.126.09")
    text = "driver 595.91.07 does not support Tesla V100-SXM2-16GB: R580 is the last branch that does"
    assert acts(pod, running=(), gpu="1db1") == [Crash(pod, "driver", text)]
    assert acts(older, running=(), gpu="1db1") == [starts(older)]


def test_an_unknown_label_crash_loops_the_plugin_until_it_is_right() -> None:
    unknown, read = BrokenConfig("no x", manager=True), Config("slice-4", "time-slicing", {"version": "v1"})
    new, old = waiting("device-plugin"), make_pod("p", "device-plugin")
    assert acts(new, unknown) == [Crash(new, "config-manager-init", "no x")]
    assert acts(old, unknown) == [Crash(old, "config-manager", "no x")]
    old.crash = "no x"
    assert acts(old, unknown) == []
    noted = Annotate(old, {keys.LOADED: read.serialize()}, 'reads configuration "slice-4"')
    assert acts(old, read) == [Recover(old), noted]


def test_missing_config_map_is_a_failed_mount() -> None:
    pod = waiting("gfd")
    missing = BrokenConfig('configmap "x" not found', mount=True)
    assert acts(pod, missing) == [Event(pod, "FailedMount", 'configmap "x" not found', "kubelet")]


def test_validator_waits_for_its_cuda_job() -> None:
    pod = waiting("validator", after=("driver", "device-plugin"))
    world = make_world(operands=("driver", "device-plugin"), pods=(pod,))
    assert operands.act(world) == []
    (created,) = operands.start_validation(world)
    assert isinstance(created, Create)
    assert created.manifest["metadata"]["annotations"] == {keys.RUN_ONCE: "true"}
    assert created.manifest["spec"]["nodeName"] == "node-0"
    world.pods.append(make_pod("job", "cuda-validator", phase="Succeeded", ready=False, start=""))
    assert (operands.start_validation(world), operands.act(world)) == ([], [starts(pod)])


def labelled(**given: Any) -> dict[str, str | None]:
    """The labels that the operator changes; {} if it changes nothing."""
    return labels_of(operands.set_labels(make_world(**given)))


def labels_of(actions: list[Action]) -> dict[str, str | None]:
    assert all(isinstance(action, NodeMeta) for action in actions)
    return {key: value for action in actions for key, value in action.labels.items()}


def test_operator_labels_a_gpu_node() -> None:
    names = "client container-toolkit dcgm dcgm-exporter device-plugin driver gpu-feature-discovery"
    deployed = [f"deploy.{name}" for name in (*names.split(), "node-status-exporter", "operator-validator")]
    assert labelled() == {f"nvidia.com/gpu.{name}": "true" for name in ("present", *deployed)}


def test_mig_manager_only_on_mig_capable_nodes_and_labels_of_others_stay() -> None:
    capable = {keys.MIG_CAPABLE: "true"}
    labels = labelled(gpu="20b0", labels=capable)
    assert (labels[f"{keys.DEPLOY}mig-manager"], labels[keys.MIG_CONFIG]) == ("true", "all-disabled")
    others = {f"{keys.DEPLOY}device-plugin": "paused-for-mig-change", keys.MIG_CONFIG: "cern"}
    assert not labelled(labels={**capable, **others}).keys() & others.keys()


def test_operator_away_changes_nothing_uninstalled_takes_only_those_of_discovery_back() -> None:
    found = {"nvidia.com/gpu.product": "Tesla-T4"}
    every = {**found, keys.PRESENT: "true", f"{keys.DEPLOY}driver": "true", keys.MIG_STATE: "success"}
    assert labelled(labels=every, cluster=Cluster(operator_installed=True)) == {}
    assert labelled(labels=every, cluster=Cluster()) == dict.fromkeys(found)


def test_a_node_that_shows_no_gpu_loses_even_what_others_have_set() -> None:
    """As NVIDIA's operator does: a node must start with the label that NFD would give it."""
    off = {f"{keys.DEPLOY}device-plugin": "false"}
    assert labelled(gpu="", labels={keys.PCI_PRESENT: "false"}) == {}
    assert labelled(labels={**off, keys.PCI_PRESENT: "false"}) == dict.fromkeys(off)
    lost = {keys.PRESENT: "false", f"{keys.DEPLOY}driver": None}
    had = {keys.PRESENT: "true", f"{keys.DEPLOY}driver": "true", keys.PCI_PRESENT: "false"}
    assert labelled(gpu="", labels=had) == lost
    born = {**off, keys.PCI_PRESENT: "true"}
    assert not labelled(labels=born).keys() & born.keys()
    assert labelled(labels=born)[f"{keys.DEPLOY}operator-validator"] == "true"
    assert labelled(labels=born, cluster=Cluster()) == {}
    assert gfd.features(make_world(labels=born, cluster=Cluster())) == []


def test_nfd_sees_the_pci_bus() -> None:
    seen = gfd.features(make_world(labels={keys.PCI_PRESENT: "false"}))
    assert labels_of(seen)[keys.PCI_PRESENT] == "true"
    assert gfd.features(make_world(operands=())) == []
    plain = gfd.features(make_world(gpu="", labels={keys.PCI_PRESENT: "true"}))
    assert labels_of(plain)[keys.PCI_PRESENT] is None


CERN_T4 = {
    "nvidia.com/cuda.driver-version.full": "550.54.15",
    "nvidia.com/cuda.driver-version.major": "550",
    "nvidia.com/cuda.driver-version.minor": "54",
    "nvidia.com/cuda.driver-version.revision": "15",
    "nvidia.com/cuda.driver.major": "550",
    "nvidia.com/cuda.driver.minor": "54",
    "nvidia.com/cuda.driver.rev": "15",
    "nvidia.com/cuda.runtime-version.full": "12.4",
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "4",
    "nvidia.com/cuda.runtime.major": "12",
    "nvidia.com/cuda.runtime.minor": "4",
    "nvidia.com/gfd.timestamp": "1728992460",
    "nvidia.com/gpu.compute.major": "7",
    "nvidia.com/gpu.compute.minor": "5",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/gpu.family": "turing",
    "nvidia.com/gpu.machine": "OpenStack-Compute",
    "nvidia.com/gpu.memory": "15360",
    "nvidia.com/gpu.mode": "compute",
    "nvidia.com/gpu.product": "Tesla-T4",
    "nvidia.com/gpu.replicas": "1",
    "nvidia.com/gpu.sharing-strategy": "none",
    "nvidia.com/mig.capable": "false",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mps.capable": "false",
    "nvidia.com/vgpu.present": "false",
}


def found(**given: Any) -> dict[str, str | None]:
    (action,) = gfd.act(make_world(**given))
    assert isinstance(action, NodeMeta)
    return action.labels


def test_cern_labels_of_a_t4() -> None:
    assert found(driver="550.54.15", annotations={keys.DMI_PRODUCT: "OpenStack Compute"}) == CERN_T4


A100 = "NVIDIA-A100-SXM4-40GB"
TWO_OF_FOUR: dict[str, Any] = {"gpu": "20b0", "count": 4, "annotations": cut(SEVEN, SEVEN)}
# What the labels are, without nvidia.com/; None: the label is missing.
CASES: dict[str, tuple[dict[str, Any], dict[str, str | None]]] = {
    "cern_shared_and_renamed": (
        sliced(4), {"gpu.product": "Tesla-T4", "gpu.replicas": "4", "gpu.sharing-strategy": "time-slicing"}
    ),
    "cisco_mps_capable": (
        mps(3), {"mps.capable": "true", "gpu.sharing-strategy": "mps", "mig.strategy": None}
    ),
    "cern_mig_mixed": (
        {"gpu": "20b0", "annotations": cut(CERN)},
        {"gpu.product": A100, "gpu.replicas": "0", "mig.capable": "true",
         "mig-2g.10gb.count": "2", "mig-2g.10gb.memory": "9856", "mig-2g.10gb.multiprocessors": "28",
         "mig-2g.10gb.product": f"{A100}-MIG-2g.10gb", "mig-2g.10gb.replicas": "1",
         "mig-2g.10gb.sharing-strategy": "none", "mig-2g.10gb.slices.ci": "2", "mig-2g.10gb.slices.gi": "2"},
    ),
    "bumble_mig_single": (
        {"gpu": "20f1", "env": "single", "annotations": cut(SEVEN)},
        {"gpu.product": "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb", "gpu.count": "7", "gpu.memory": "4864"},
    ),
    "single_with_several_profiles": (
        {"gpu": "20b0", "env": "single", "annotations": cut(CERN)},
        {"gpu.product": f"{A100}-MIG-INVALID", "gpu.count": "0"},
    ),
    "single_with_a_whole_gpu": (
        {**TWO_OF_FOUR, "env": "single"},
        {"gpu.product": f"{A100}-MIG-INVALID", "gpu.count": "0", "gpu.memory": "0"},
    ),
    "mixed_counts_all_four_and_shares_the_whole_ones": (
        {**TWO_OF_FOUR, **sliced(2, rename=False)},
        {"gpu.count": "4", "gpu.product": f"{A100}-SHARED", "gpu.replicas": "2",
         "mig-1g.5gb.count": "14", "mig-1g.5gb.sharing-strategy": "none"},
    ),
    "shared_slices": (
        {**TWO_OF_FOUR, **sliced(2, MIG, rename=False)},
        {"mig-1g.5gb.product": f"{A100}-MIG-1g.5gb-SHARED", "mig-1g.5gb.replicas": "2",
         "mig-1g.5gb.sharing-strategy": "time-slicing", "gpu.sharing-strategy": "none"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_labels(case: str) -> None:
    given, expected = CASES[case]
    labels = found(**given)
    assert {name: labels.get(f"nvidia.com/{name}") for name in expected} == expected


def test_labels_of_a_former_layout_go() -> None:
    stale = {f"{MIG}.count": "7", "nvidia.com/mig.config": "all-1g.5gb"}
    labels = found(gpu="20b0", labels=stale, annotations=cut(CERN))
    assert labels[f"{MIG}.count"] is None
    assert "nvidia.com/mig.config" not in labels


def test_same_labels_again_and_a_missing_operand_write_nothing() -> None:
    assert gfd.act(make_world(labels=found())) == []
    for missing in ("gfd", "driver"):
        left = tuple({"nfd-worker", "driver", "gfd"} - {missing})
        assert gfd.act(make_world(operands=left)) == []


REAL = replace(RUNNING, is_real=True)
WAITS = {keys.START: "waits"}
NFD = {"app.kubernetes.io/name": "node-feature-discovery", "app.kubernetes.io/instance": "gpu-operator"}


def plugin_pod() -> dict[str, Any]:
    """Of the device plugin, as the operator 25.3.4 makes it, without what the simulator does not read."""

    def container(name: str, *mounts: str) -> dict[str, Any]:
        volumes = [{"name": mount, "mountPath": f"/{mount}"} for mount in mounts]
        return {"name": name, "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.4", "volumeMounts": volumes}

    scripts, configs = "nvidia-device-plugin-entrypoint", "available-configs"
    init = [container("toolkit-validation", "run-validations"), container("config-manager-init", configs)]
    containers = [
        container("nvidia-device-plugin", scripts, "config"),
        container("config-manager", configs, "config"),
    ]
    maps = {scripts: scripts, configs: "time-slicing"}
    volumes = [{"name": volume, "configMap": {"name": name}} for volume, name in maps.items()]
    volumes.insert(1, {"name": "config", "emptyDir": {}})
    meta = {"name": "p", "namespace": "gpu-operator", "uid": "u", "resourceVersion": "1"}
    meta |= {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": WAITS}
    meta["labels"] = {"app": "nvidia-device-plugin-daemonset"}
    spec = {"nodeName": "node-0", "initContainers": init, "containers": containers, "volumes": volumes}
    return {"metadata": meta, "spec": spec}


def test_an_operand_is_told_by_its_label_and_reads_its_own_config_map() -> None:
    pod = parse_pod(plugin_pod())
    assert pod
    assert (pod.operand, pod.start) == ("device-plugin", "waits")
    assert (pod.template.config_map, pod.template.after) == ("time-slicing", ("validator",))


def test_other_pods_are_no_operands() -> None:
    driver = {"app": "nvidia-driver-daemonset"}
    assert [real_operator.operand(driver, annotations) for annotations in (WAITS, {})] == ["driver", ""]
    assert real_operator.operand({"app": "web"}, WAITS) == ""
    assert real_operator.operand({**NFD, "role": "worker"}, {}) == "nfd-worker"


def test_the_validator_waits_for_the_toolkit_and_the_others_for_the_validator() -> None:
    names = ("driver-validation", "nvidia-fs-validation", "toolkit-validation", "cuda-validation")
    validator = tuple((name, "x") for name in (*names, "plugin-validation"))
    assert set(real_operator.waits_for(validator)) == {"driver", "toolkit", "device-plugin"}
    assert real_operator.waits_for((("k8s-driver-manager", "x"),)) == ()
    assert real_operator.waits_for((("driver-validation", "x"),)) == ("driver",)


def test_the_programs_are_told_by_their_deployments() -> None:
    operator = dict.fromkeys(("app.kubernetes.io/name", "app.kubernetes.io/component"), "gpu-operator")
    assert real_operator.program(operator) == real_operator.OPERATOR
    assert real_operator.program({**NFD, "role": "master"}) == real_operator.MASTER
    assert real_operator.program({**NFD, "role": "gc"}) == ""


def test_what_is_on_the_host_is_not_waited_for() -> None:
    waiting = make_pod("v", "gfd", start="waits", phase="Pending", after=("driver", "toolkit"))
    given: dict[str, Any] = {"pods": (waiting,), "driver": "", "cluster": REAL}
    assert operands.act(make_world(operands=("toolkit",), **given)) == []
    on_host = {keys.HOST_DRIVER: "595.91.07"}
    (action,) = operands.act(make_world(operands=(), annotations=on_host, **given))
    assert isinstance(action, Annotate)
    starting = make_pod("t", "toolkit", start="waits", phase="Pending", after=("driver",))
    both = {**given, "pods": (waiting, starting)}
    assert len(operands.act(make_world(operands=(), annotations=on_host, **both))) == 1, "the toolkit alone"


def test_labels_are_published_for_nfd_which_sets_them() -> None:
    world = make_world(cluster=REAL)
    assert operands.set_labels(world) == []
    (found,) = gfd.features(world)
    (shown,) = gfd.act(world)
    assert isinstance(found, PublishFeature)
    assert isinstance(shown, PublishFeature)
    assert (found.feature.name, shown.feature.name) == ("node-0", "nvidia-features-for-node-0")
    assert found.feature.labels[keys.PCI_PRESENT] == "true"
    manifest = shown.feature.manifest(world.node)
    assert manifest["metadata"]["labels"] == {"nfd.node.kubernetes.io/node-name": "node-0"}
    assert manifest["spec"]["labels"]["nvidia.com/gpu.product"] == "Tesla-T4"
    assert manifest["metadata"]["ownerReferences"][0]["uid"] == "uid-ds", "gone with its DaemonSet"
    published = {("gpu-operator", item.feature.name): item.feature.labels for item in (found, shown)}
    again = replace(world, features=published)
    assert [*gfd.features(again), *gfd.act(again)] == []
    assert gfd.features(make_world(cluster=REAL, operands=())) == [], "no worker"
