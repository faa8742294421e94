"""The preflight of cluster templates: references, effects, and who brings NVIDIA's operator and driver."""

from __future__ import annotations

from typing import Any

import pytest

from gpuform.clouds.openstack.preflight.project import StateClusters
from tests.clouds.openstack.environments import (
    CLUSTER,
    IMAGE,
    INSIDE,
    T4,
    environment,
    environment_in_network,
    findings,
)
from tests.clouds.openstack.fake_cloud import FakeCloud

pytestmark = pytest.mark.unit


def test_a_cluster_needs_what_it_names_and_what_its_template_makes(cloud: FakeCloud) -> None:
    found = findings(cloud, environment_in_network(cloud))
    assert {one.subject for one in found.values() if one.verdict == "FAIL"} == set()
    assert found["image fedora-coreos-40"].fact == "os_distro fedora-coreos"
    assert found["network inside"].fact == "1 subnet(s)"
    assert found["subnet nodes"].fact == "10.0.0.0/24"
    assert found["quota of volumes"].fact.startswith("8 more at most")
    assert found["quota of volumes' size (GiB)"].fact.startswith("400 more at most")
    assert found["quota of floating IPs"].fact.startswith("9 more at most"), "eight nodes and the API"
    assert found["quota of load balancers"].fact == "2 more at most (masters 2); 0 of 2 taken"


@pytest.mark.parametrize(
    ("has", "subject", "fact"),
    [
        ({"images": [IMAGE | {"os_distro": None}]}, "image fedora-coreos-40", "has no os_distro"),
        ({"images": [IMAGE, IMAGE | {"id": "i-2"}]}, "image fedora-coreos-40", "2 images have this name"),
        ({"images": [IMAGE | {"status": "queued"}]}, "image fedora-coreos-40", "is queued"),
        ({"images": [IMAGE | {"kube_version": "v1.31.0"}]}, "image fedora-coreos-40",
         "gives Kubernetes 1.31"),
        ({"images": []}, "image fedora-coreos-40", "glance has no such image"),
        ({"networks": []}, "network inside", "neutron has no such network"),
        ({"networks": [INSIDE | {"subnets": []}]}, "network inside", "has no subnet"),
        ({"subnets": []}, "subnet nodes", "neutron has no such subnet"),
        ({"subnets": [{"id": "s-1", "name": "nodes", "network_id": "n-9", "cidr": "10.1.0.0/24"}]},
         "subnet nodes", "is not in network inside"),
        ({"balancers": [{"id": "b"}]}, "quota of load balancers", "1 of 2 taken"),
    ],
)  # fmt: skip
def test_what_a_cloud_lacks(cloud: FakeCloud, has: dict[str, Any], subject: str, fact: str) -> None:
    env = environment_in_network(cloud)
    for name, value in has.items():
        setattr(cloud, name, value)
    found = findings(cloud, env)[subject]
    assert found.verdict == "FAIL"
    assert fact in found.fact


@pytest.mark.parametrize(
    ("where", "named"), [("hidden", "fedora-coreos-39"), ("hidden", "i-0"), ("community", "i-0")]
)
def test_an_image_that_glance_does_not_list_is_found_as_magnum_finds_it(
    cloud: FakeCloud, where: str, named: str
) -> None:
    setattr(cloud, where, [IMAGE | {"id": "i-0", "name": "fedora-coreos-39"}])
    found = findings(cloud, environment(T4 | {"openstack": {"image": named}}))[f"image {named}"]
    assert (found.verdict, found.fact) == ("PASS", "os_distro fedora-coreos")


def test_a_service_whose_policy_lets_nobody_ask_is_neither_failed_nor_passed(cloud: FakeCloud) -> None:
    cloud.refused = {"octavia": 403, "neutron": 500}
    found = findings(cloud, environment_in_network(cloud))
    balancers = found["quota of load balancers"]
    assert balancers.verdict == "SKIP"
    assert balancers.fact.startswith("not checked: the caller has no permission for GET ")
    assert (found["network inside"].verdict, found["quota of ports"].verdict) == ("SKIP", "SKIP")
    assert "HTTP 500" in found["quota of ports"].fact


UBUNTU = IMAGE | {"id": "i-3", "name": "fedora-coreos-40", "os_distro": "ubuntu", "kube_version": "v1.30.4"}


@pytest.mark.parametrize(
    ("image", "verdict", "fact"),
    [
        (UBUNTU, "PASS", "Kubernetes v1.30.4, os_distro ubuntu"),
        (UBUNTU | {"kube_version": "v1.31.0"}, "FAIL", "gives Kubernetes 1.31 (its kube_version is v1.31.0)"),
        (UBUNTU | {"kube_version": None}, "FAIL", "has no kube_version, which Magnum's Cluster API driver"),
        (UBUNTU | {"os_distro": "fedora-coreos"}, "FAIL",
         "has os_distro fedora-coreos, by which Magnum selects"),
        (UBUNTU | {"os_distro": None}, "FAIL", "has no os_distro, by which Magnum selects its driver"),
    ],
)  # fmt: skip
def test_the_cluster_api_driver_takes_the_version_from_the_templates_image(
    cloud: FakeCloud, image: dict[str, Any], verdict: str, fact: str
) -> None:
    """The template's label kube_tag is for Heat."""
    cloud.templates[0]["labels"] = {"kube_tag": "v1.29.0"}
    cloud.images = [image]
    found = findings(cloud, environment(T4, driver="capi"))["template kubernetes-1.30.2-2"]
    assert (found.verdict, found.fact[: len(fact)]) == (verdict, fact)
    assert "fedora-coreos" not in found.fix


@pytest.mark.parametrize(("address", "floating"), [({}, 1), ({"master_lb_floating_ip_enabled": "false"}, 0)])
def test_the_cluster_api_driver_has_one_load_balancer_and_no_addresses_of_nodes(
    cloud: FakeCloud, address: dict[str, str], floating: int
) -> None:
    """Whatever the template says of either."""
    cloud.templates[0] |= {"floating_ip_enabled": not floating, "master_lb_enabled": False}
    found = findings(cloud, environment(T4, driver="capi", labels=address))
    assert found["quota of load balancers"].fact.startswith("1 more at most (masters 1)")
    needed = found.get("quota of floating IPs")
    assert (needed.fact.startswith("1 more at most (API 1)") if needed else 0) == bool(floating)


LABEL = "label nvidia_gpu_enabled"
CHARTS = "operator of the cluster"
DRIVER = "driver for template kubernetes-1.30.2-2"
UBUNTU_24 = IMAGE | {"id": "i-3", "name": "ubuntu-24.04", "os_distro": "ubuntu"}
CPU = {"name": "cpu", "machine": "m2.medium", "nodes": 1}
FLAVORS = {"m2.medium": {"vcpu": 2, "memory_gib": 4}}
NOT_MERGED = {"labels": {"nvidia_gpu_enabled": False}, "merge_labels": False}
EXISTING = {"operator": {"mode": "existing"}}
OURS = StateClusters(frozenset({"c-1"}), creating=False)


def _template(cloud: FakeCloud, **more: Any) -> None:
    labels = {**cloud.templates[0]["labels"], **more.pop("labels", {})}
    cloud.templates[0] |= {**more, "labels": labels}


@pytest.mark.parametrize(
    ("template", "cluster", "verdict", "fact"),
    [
        ({}, {}, "SKIP", "it follows from the pools"),
        ({}, {"labels": {"nvidia_gpu_enabled": True}}, "FAIL", "is true in the file"),
        ({"nvidia_gpu_enabled": "true"}, {}, "FAIL", "is in the template, so the cloud knows it"),
        ({"nvidia_gpu_enabled": "True"}, {"labels": {"nvidia_gpu_enabled": False}}, "PASS", "is not true"),
        ({"nvidia_gpu_enabled": "true"}, NOT_MERGED, "PASS", "is not true"),
        ({}, EXISTING, "PASS", "is true; whether the cloud knows it"),
        ({}, {**EXISTING, "labels": {"nvidia_gpu_enabled": False}}, "FAIL", "the cloud brings no operator"),
    ],
)
def test_a_second_operator_is_told_by_the_label_of_file_and_template(
    cloud: FakeCloud, template: dict[str, str], cluster: dict[str, Any], verdict: str, fact: str
) -> None:
    _template(cloud, labels=template)
    found = findings(cloud, environment(T4, **cluster))[LABEL]
    assert found.verdict == verdict
    assert fact in found.fact
    ways = ('cluster.labels: {nvidia_gpu_enabled: "false"}', "gpu_operator.mode: existing")
    assert all(way in found.fix for way in ways) == (verdict != "PASS" and "operator" not in cluster)


@pytest.mark.parametrize(
    ("operator", "verdict", "fix"),
    [
        ({}, "FAIL",
         "use gpu_operator.mode: existing, or if your cloud has disabled it, write mode: operator"),
        ({"mode": "operator"}, "FAIL",
         "write gpu_operator.nfd: false, or if your cloud has disabled it, nfd: true"),
        ({"mode": "operator", "nfd": False}, "PASS", ""),
        ({"mode": "device_plugin", "nfd": True}, "PASS", ""),
        ({"mode": "existing"}, "PASS", ""),
    ],
)  # fmt: skip
def test_cluster_apis_charts_bring_both(
    cloud: FakeCloud, operator: dict[str, Any], verdict: str, fix: str
) -> None:
    found = findings(cloud, environment(T4, driver="capi", operator=operator))
    assert (found[CHARTS].verdict, found[CHARTS].fix) == (verdict, fix)
    assert LABEL not in found
    cloud.clusters = [CLUSTER]
    assert findings(cloud, environment(T4, driver="capi", operator=operator), OURS)[CHARTS].verdict == "PASS"


@pytest.mark.parametrize("distro", ["fedora-coreos", "flatcar"])
def test_an_image_without_a_driver_of_nvidias(cloud: FakeCloud, distro: str) -> None:
    cloud.images = [IMAGE | {"os_distro": distro}]
    found = findings(cloud, environment())[DRIVER]
    assert found.verdict == "FAIL"
    assert found.fact.startswith(f"os_distro is {distro}, for which NVIDIA publishes no driver images")
    assert "gpu_operator.driver: host" in found.fix
    assert "gpu_operator.driver_repository and driver_image" in found.fix
    cloud.clusters = [CLUSTER]
    assert findings(cloud, environment(), OURS)[DRIVER].verdict == "SKIP", "nothing is created with it"


OWNERS = {"driver": "host", "driver_repository": "registry.example.org/gpu", "driver_image": "own"}


@pytest.mark.parametrize("operator", [*({key: OWNERS[key]} for key in OWNERS), {"mode": "existing"}])
def test_a_driver_of_ones_own_is_not_checked(cloud: FakeCloud, operator: dict[str, str]) -> None:
    cloud.images = [IMAGE]
    found = findings(cloud, environment(T4, operator=operator))
    assert not [subject for subject in found if subject.startswith("driver")]
    assert ("GPUs without a request" in found) is ("mode" in operator), "then the toolkit is not ours"


def test_each_image_of_pools_with_gpus_is_asked_once(cloud: FakeCloud) -> None:
    cloud.images = [IMAGE, UBUNTU_24]
    pool = T4 | {"openstack": {"image": "ubuntu-24.04"}}
    cpu = CPU | {"openstack": {"image": IMAGE["name"]}}
    found = findings(cloud, environment(pool, T4 | {"name": "more"}, cpu, flavors=FLAVORS))
    drivers = {one.subject: one.verdict for one in found.values() if one.subject.startswith("driver")}
    assert drivers == {"driver for image ubuntu-24.04": "PASS", DRIVER: "FAIL"}


def test_the_templates_own_word_counts_where_its_image_is_not_shown(cloud: FakeCloud) -> None:
    _template(cloud, cluster_distro="fedora-coreos")
    assert findings(cloud, environment())[DRIVER].verdict == "FAIL"
    _template(cloud, cluster_distro=None)
    assert findings(cloud, environment())[DRIVER].verdict == "SKIP"
