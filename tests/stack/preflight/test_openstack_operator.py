"""What is known of NVIDIA's operator before Magnum is asked for a cluster: who brings it, and its driver."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.stack.preflight.openstack.project import Held
from tests.stack.preflight.looking import IMAGE, T4, declared, look
from tests.stack.preflight.made_up_cloud import MadeUp

pytestmark = pytest.mark.unit

LABEL = "label nvidia_gpu_enabled"
CHARTS = "operator of the cluster"
DRIVER = "driver for template kubernetes-1.30.2-2"
UBUNTU = IMAGE | {"id": "i-3", "name": "ubuntu-24.04", "os_distro": "ubuntu"}
CPU = {"name": "cpu", "machine": "m2.medium", "nodes": 1}
FLAVORS = {"m2.medium": {"vcpu": 2, "memory_gib": 4}}
EXISTING = {"operator": {"mode": "existing"}}
OURS = Held(frozenset({"c-1"}), making=False)


def _template(cloud: MadeUp, **more: Any) -> None:
    labels = {**cloud.templates[0]["labels"], **more.pop("labels", {})}
    cloud.templates[0] |= {**more, "labels": labels}


@pytest.mark.parametrize(
    ("template", "cluster", "verdict", "fact"),
    [
        ({}, {}, "SKIP", "it follows from the pools"),
        ({}, {"labels": {"nvidia_gpu_enabled": True}}, "FAIL", "is true in the file"),
        ({"nvidia_gpu_enabled": "true"}, {}, "FAIL", "is in the template, so the cloud knows it"),
        ({"nvidia_gpu_enabled": "True"}, {"labels": {"nvidia_gpu_enabled": False}}, "PASS", "is not true"),
        ({}, EXISTING, "PASS", "is true; whether the cloud knows it"),
        ({}, {**EXISTING, "labels": {"nvidia_gpu_enabled": False}}, "FAIL", "the cloud brings no operator"),
    ],
)
def test_a_second_operator_is_told_by_the_label_of_file_and_template(
    cloud: MadeUp, template: dict[str, str], cluster: dict[str, Any], verdict: str, fact: str
) -> None:
    _template(cloud, labels=template)
    found = look(cloud, declared(T4, **cluster))[LABEL]
    assert found.verdict == verdict
    assert fact in found.fact
    ways = ('cluster.labels: {nvidia_gpu_enabled: "false"}', "gpu_operator.mode: existing")
    assert all(way in found.fix for way in ways) == (verdict != "PASS" and "operator" not in cluster)


def test_labels_that_are_not_merged_leave_the_templates_out(cloud: MadeUp) -> None:
    _template(cloud, labels={"nvidia_gpu_enabled": "true"})
    env = declared(labels={"nvidia_gpu_enabled": False}, merge_labels=False)
    assert look(cloud, env)[LABEL].verdict == "PASS"


@pytest.mark.parametrize(
    ("operator", "verdict", "fix"),
    [
        (
            {},
            "FAIL",
            "use gpu_operator.mode: existing, or if your cloud has disabled it, write mode: operator",
        ),
        (
            {"mode": "operator"},
            "FAIL",
            "write gpu_operator.nfd: false, or if your cloud has disabled it, nfd: true",
        ),
        ({"mode": "operator", "nfd": False}, "PASS", ""),
        ({"mode": "device_plugin", "nfd": True}, "PASS", ""),
        ({"mode": "existing"}, "PASS", ""),
    ],
)
def test_cluster_apis_charts_bring_both(
    cloud: MadeUp, operator: dict[str, Any], verdict: str, fix: str
) -> None:
    found = look(cloud, declared(T4, driver="capi", operator=operator))
    assert (found[CHARTS].verdict, found[CHARTS].fix) == (verdict, fix)
    assert LABEL not in found
    cloud.clusters = [{"uuid": "c-1", "name": "research", "status": "CREATE_COMPLETE"}]
    assert look(cloud, declared(T4, driver="capi", operator=operator), OURS)[CHARTS].verdict == "PASS"


@pytest.mark.parametrize("distro", ["fedora-coreos", "flatcar"])
def test_an_image_without_a_driver_of_nvidias(cloud: MadeUp, distro: str) -> None:
    cloud.images = [IMAGE | {"os_distro": distro}]
    found = look(cloud, declared())[DRIVER]
    assert found.verdict == "FAIL"
    assert found.fact.startswith(f"os_distro is {distro}, for which NVIDIA publishes no driver images")
    assert "gpu_operator.driver: host" in found.fix
    assert "gpu_operator.driver_repository and driver_image" in found.fix
    cloud.clusters = [{"uuid": "c-1", "name": "research", "status": "CREATE_COMPLETE"}]
    assert look(cloud, declared(), OURS)[DRIVER].verdict == "SKIP", "nothing is created with it"


@pytest.mark.parametrize(
    "operator",
    [
        {"driver": "host"},
        {"driver_repository": "registry.example.org/gpu"},
        {"driver_image": "own"},
        {"mode": "existing"},
    ],
)
def test_a_driver_of_ones_own_is_not_checked(cloud: MadeUp, operator: dict[str, str]) -> None:
    cloud.images = [IMAGE]
    found = look(cloud, declared(T4, operator=operator))
    assert not [subject for subject in found if subject.startswith("driver")]
    assert ("GPUs without a request" in found) is ("mode" in operator), "then the toolkit is not ours"


def test_each_image_of_pools_with_gpus_is_asked_once(cloud: MadeUp) -> None:
    cloud.images = [IMAGE, UBUNTU]
    pool = T4 | {"openstack": {"image": "ubuntu-24.04"}}
    cpu = CPU | {"openstack": {"image": IMAGE["name"]}}
    found = look(cloud, declared(pool, T4 | {"name": "more"}, cpu, flavors=FLAVORS))
    drivers = {one.subject: one.verdict for one in found.values() if one.subject.startswith("driver")}
    assert drivers == {"driver for image ubuntu-24.04": "PASS", DRIVER: "FAIL"}


def test_the_templates_own_word_counts_where_its_image_is_not_shown(cloud: MadeUp) -> None:
    _template(cloud, cluster_distro="fedora-coreos")
    assert look(cloud, declared())[DRIVER].verdict == "FAIL"
    _template(cloud, cluster_distro=None)
    assert look(cloud, declared())[DRIVER].verdict == "SKIP"
