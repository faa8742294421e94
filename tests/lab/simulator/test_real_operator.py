"""Pods of NVIDIA's own operator: which operand each is, what it waits for, and what it publishes for NFD."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lab.simulator import gfd, keys, operands, real_operator
from lab.simulator.actions import Annotate, PublishFeature
from lab.simulator.objects import parse_pod
from tests.lab.simulator.worlds import RUNNING, make_pod, make_world

pytestmark = pytest.mark.unit
REAL = replace(RUNNING, is_real=True)
WAITS = {keys.START: "waits"}
NFD = {"app.kubernetes.io/name": "node-feature-discovery", "app.kubernetes.io/instance": "gpu-operator"}


def plugin_pod() -> dict[str, Any]:
    """Of the device plugin, as the operator 25.3.4 makes it, without what the simulator does not read."""

    def mounts(*names: str) -> list[dict[str, str]]:
        return [{"name": name, "mountPath": f"/{name}"} for name in names]

    scripts = {
        "name": "nvidia-device-plugin-entrypoint",
        "configMap": {"name": "nvidia-device-plugin-entrypoint"},
    }
    own = {"name": "available-configs", "configMap": {"name": "time-slicing"}}
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.17.4"
    init = [
        {"name": "toolkit-validation", "image": "x", "volumeMounts": mounts("run-nvidia-validations")},
        {"name": "config-manager-init", "image": image, "volumeMounts": mounts("available-configs")},
    ]
    containers = [
        {"name": "nvidia-device-plugin", "image": image, "volumeMounts": mounts(scripts["name"], "config")},
        {"name": "config-manager", "image": image, "volumeMounts": mounts("available-configs", "config")},
    ]
    volumes = [scripts, {"name": "config", "emptyDir": {}}, own]
    meta = {"name": "p", "namespace": "gpu-operator", "uid": "u", "resourceVersion": "1"}
    meta |= {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": WAITS}
    meta["labels"] = {"app": "nvidia-device-plugin-daemonset"}
    spec = {"nodeName": "node-0", "initContainers": init, "containers": containers, "volumes": volumes}
    return {"metadata": meta, "spec": spec}


def test_an_operand_is_told_by_its_label_and_reads_its_own_config_map() -> None:
    pod = parse_pod(plugin_pod())
    assert pod
    assert (pod.operand, pod.start) == ("device-plugin", "waits")
    assert pod.template.config_map == "time-slicing"
    assert pod.template.after == ("validator",)


@pytest.mark.parametrize(
    ("labels", "annotations", "operand"),
    [
        ({"app": "nvidia-driver-daemonset"}, WAITS, "driver"),
        ({"app": "nvidia-driver-daemonset"}, {}, ""),
        ({"app": "web"}, WAITS, ""),
        ({**NFD, "role": "worker"}, {}, "nfd-worker"),
    ],
)
def test_other_pods_are_none(labels: dict[str, str], annotations: dict[str, str], operand: str) -> None:
    assert real_operator.operand(labels, annotations) == operand


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
