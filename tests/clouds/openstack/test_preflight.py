"""The preflight of an OpenStack project and its cluster template, on a made-up cloud."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpuform.checkout.paths import Paths
from gpuform.clients.openstack.cloud import connect
from gpuform.clouds.openstack.preflight import checks_of, project
from gpuform.clouds.openstack.preflight.project import ClusterPlace, Project, StateClusters, clusters_in_state
from gpuform.engine.files import EngineFiles
from infra.model.environment import Environment
from tests.clouds.findings import expect
from tests.clouds.openstack.environments import A100, CLUSTER, T4, environment, findings
from tests.fakes.openstack import PROJECT, FakeCloud, flavor, limits, template

pytestmark = pytest.mark.unit

IMAGE = {"id": "i-1", "name": "fedora-coreos-40", "os_distro": "fedora-coreos", "status": "active"}
OF_POOL = "image fedora-coreos-40"
INSIDE = {"id": "n-2", "name": "inside", "subnets": ["s-1"]}


def environment_in_network(cloud: FakeCloud) -> Environment:
    """In a network that exists, from a template with load balancers and floating IPs."""
    cloud.templates[0] |= {"floating_ip_enabled": True, "master_lb_enabled": True}
    cloud.images, cloud.networks = [IMAGE], [INSIDE]
    cloud.subnets = [{"id": "s-1", "name": "nodes", "network_id": "n-2", "cidr": "10.0.0.0/24"}]
    network = {"fixed_network": "inside", "fixed_subnet": "nodes"}
    pool = T4 | {"openstack": {"image": IMAGE["name"]}}
    return environment(pool, A100, network=network, docker_volume_gib=50, operator={"driver": "host"})


def test_a_project_that_has_everything_passes_and_no_question_is_asked_twice(cloud: FakeCloud) -> None:
    cloud.images = [IMAGE]
    found = findings(cloud, environment(labels={"nvidia_gpu_enabled": False}, operator={"driver": "host"}))
    assert {one.subject for one in found.values() if one.verdict != "PASS"} == {"quota of GPUs"}
    assert "gpu-t4, gpu-a100" in found["quota of GPUs"].fact
    assert found["credentials"].fact == "project gpus as someone"
    assert found["Magnum's API"].fact == "1.11; 1.10 is needed"
    assert found["template kubernetes-1.30.2-2"].fact == "Kubernetes v1.30.2, image fedora-coreos-40"
    assert not {one for one in cloud.requests if not one.startswith(("GET ", "POST keystone"))}
    assert max(Counter(cloud.requests).values()) == 1


def test_what_is_needed_is_counted_by_group_and_what_is_there_is_not_needed_again(cloud: FakeCloud) -> None:
    new = findings(cloud, environment())
    every = "default-master 1, default-worker 1, gpu-t4 2, gpu-a100 4"
    assert new["quota of instances"].fact == f"8 more at most ({every}); 3 of 100 taken"
    assert new["quota of vCPUs"].fact.startswith("124 more at most (default-master 2, ")
    assert new["quota of memory (MiB)"].fact.endswith("; the project has no limit, 4096 taken")
    assert new["quota of Magnum's clusters"].fact == "1 more at most (the cluster 1); 0 of 20 taken"
    cloud.clusters = [CLUSTER]
    cloud.node_groups = [
        {"name": "default-master", "flavor_id": "m2.medium", "node_count": 1},
        {"name": "default-worker", "flavor_id": "m2.medium", "node_count": 3},
        {"name": "gpu-t4", "flavor_id": "id-g2.5xlarge", "node_count": 1},
    ]
    there = findings(cloud, environment(), StateClusters(frozenset({"c-1"}), creating=False))
    assert there["cluster research"].fact == "CREATE_COMPLETE, 3 node groups"
    assert there["quota of instances"].fact == "5 more at most (gpu-t4 1, gpu-a100 4); 3 of 100 taken"
    assert there["quota of vCPUs"].fact == "92 more at most (gpu-t4 28, gpu-a100 64); 12 of 1000 taken"
    assert there["quota of Magnum's clusters"].fact == "no more than it has; 1 of 20 taken"


@pytest.mark.parametrize(
    ("has", "subject", "fact", "fix"),
    [
        ({"limits": limits(maxTotalCores=100)}, "quota of vCPUs", r"; 12 of 100 taken",
         "openstack quota set --cores 136 "),
        ({"limits": limits(maxTotalInstances=7)}, "quota of instances",
         "; the nodes that always run need 5 more", "openstack quota set --instances 11 "),
        ({"hard_limit": 0}, "quota of Magnum's clusters", "0 of 0 taken", "openstack coe quotas update "),
        ({"flavors": []}, "flavor g2.5xlarge", "nova has no such flavor for the project; it has none",
         "gpu-t4"),
        ({"flavors": [flavor("m2.medium", 2, 4), flavor("g2.5xlarge", 28, 120)]},
         "flavor g2.5xlarge", "has 28 vCPUs, 120 GiB, but the environment assumes 28 vCPUs, 168 GiB",
         "cluster.flavors: g2.5xlarge: {gpu: T4, count: 1, vcpu: 28, memory_gib: 120}"),
        ({"templates": []}, "template kubernetes-1.30.2-2", "it has none", "cluster.template"),
        ({"templates": [template(coe="swarm")]}, "template kubernetes-1.30.2-2", "is for swarm",
         "one for kubernetes"),
        ({"templates": [template(labels={"kube_tag": "v1.29.4"})]}, "template kubernetes-1.30.2-2",
         "gives Kubernetes 1.29 (its label kube_tag is v1.29.4), but cluster.version is 1.30",
         'write version: "1.29"'),
        ({"keypairs": ()}, "key pair gpu-admins",
         "nova has no such key pair for the user of these credentials",
         "keypair create --public-key ~/.ssh/id_ed25519.pub gpu-admins"),
        ({"newest": "1.7"}, "Magnum's API", "API too old: 1.7, node groups need 1.9 and empty groups 1.10",
         "use a cloud with Magnum 12.0.0 (Wallaby) or newer"),
        ({"services": ("keystone", "nova")}, "Magnum",
         "the catalogue has no container-infra here; its services: compute, identity", "with Magnum"),
        ({"password": "other"}, "credentials", "Wrong password, says keystone.", "openstack token issue"),
        ({"images": [IMAGE | {"os_distro": None}]}, OF_POOL, "has no os_distro", "os_distro=fedora-coreos"),
        ({"images": [IMAGE, IMAGE | {"id": "i-2"}]}, OF_POOL, "2 images have this name", "i-1, i-2"),
        ({"images": [IMAGE | {"status": "queued"}]}, OF_POOL, "is queued", ""),
        ({"images": [IMAGE | {"kube_version": "v1.31.0"}]}, OF_POOL, "gives Kubernetes 1.31", ""),
        ({"images": []}, OF_POOL, "glance has no such image", ""),
        ({"networks": []}, "network inside", "neutron has no such network", ""),
        ({"networks": [INSIDE | {"subnets": []}]}, "network inside", "has no subnet", ""),
        ({"subnets": []}, "subnet nodes", "neutron has no such subnet", ""),
        ({"subnets": [{"id": "s-1", "name": "nodes", "network_id": "n-9", "cidr": "10.1.0.0/24"}]},
         "subnet nodes", "is not in network inside", ""),
        ({"balancers": [{"id": "b"}]}, "quota of load balancers", "1 of 2 taken", ""),
    ],
)  # fmt: skip
def test_project_lacks_what_the_environment_needs(
    cloud: FakeCloud, has: dict[str, Any], subject: str, fact: str, fix: str
) -> None:
    env = environment_in_network(cloud)
    for name, value in has.items():
        setattr(cloud, name, value)
    expect(findings(cloud, env)[subject], "FAIL", fact, fix)


def test_old_magnum_stops_the_rest(cloud: FakeCloud) -> None:
    cloud.newest = "1.7"
    found = findings(cloud, environment())
    rest = list(found.values())[4:]
    assert {(one.verdict, one.fact) for one in rest} == {("SKIP", "not checked: see Magnum's API")}
    assert not [one for one in cloud.requests if "clusters" in one or "nova" in one]


@pytest.mark.parametrize("answer", [{"quota": {}}, None])
def test_unknown_quota_is_no_failure(cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    before = cloud._neutron
    monkeypatch.setattr(cloud, "_neutron", lambda path, _: answer if "quotas" in path else before(path, _))
    found = findings(cloud, environment())["quota of ports"]
    expect(found, "SKIP", "not known: the service's answer has no ")


def test_missing_credentials_name_clouds_yaml_and_the_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.startswith("OS_") and name != "OS_CLIENT_CONFIG_FILE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = list(checks_of(environment(), "research", Project(connect, "research")))
    assert Counter(one.verdict for one in found) == {"FAIL": 1, "SKIP": len(found) - 1}
    assert found[0].subject == "credentials"
    for named in (
        "clouds.yaml",
        "~/.config/openstack",
        "OS_CLIENT_CONFIG_FILE",
        "OS_AUTH_URL",
        "OS_PASSWORD",
    ):
        assert named in found[0].fix


def test_what_is_declared_of_regions_and_flavors_is_compared_with_the_cloud(cloud: FakeCloud) -> None:
    region = findings(cloud, environment(), region="elsewhere")["region cern"]
    expect(region, "FAIL", "the catalogue has no elsewhere", "cern")
    old = findings(cloud, environment({"name": "old", "machine": "g2.xlarge", "nodes": 1}))
    expect(old["flavor g2.xlarge"], "SKIP", "4 vCPUs, 16 GiB; deprecated by its cloud")
    own = {"gpu.l40s": {"gpu": "L40S", "count": 2, "vcpu": 32, "memory_gib": 128}}
    env = environment({"name": "big", "machine": "gpu.l40s", "nodes": 1}, flavors=own)
    assert findings(cloud, env)["flavor gpu.l40s"].verdict == "FAIL"
    cloud.flavors.append(flavor("gpu.l40s", 32, 128))
    assert findings(cloud, env)["flavor gpu.l40s"].fact == "32 vCPUs, 128 GiB, for big"


@pytest.mark.parametrize(
    ("cluster", "state", "verdict", "fact"),
    [
        (CLUSTER, None, "PASS", "CREATE_COMPLETE, 0 node groups"),
        (CLUSTER, StateClusters(frozenset({"c-1"}), False), "PASS", "CREATE_COMPLETE, 0 node groups"),
        (CLUSTER, StateClusters(frozenset(), False), "FAIL",
         "c-1 already has this name, .*: it belongs to another stack or user"),
        (CLUSTER, StateClusters(frozenset(), True), "SKIP", "an interrupted `up` was creating one"),
        (CLUSTER | {"status": "DELETE_IN_PROGRESS"}, None, "FAIL", "is being deleted"),
        (CLUSTER | {"status": "CREATE_FAILED", "status_reason": "No valid host was found"}, None, "SKIP",
         "CREATE_FAILED: No valid host was found"),
    ],
)  # fmt: skip
def test_cluster_of_the_same_name_is_judged_by_the_state(
    cloud: FakeCloud, cluster: dict[str, Any], state: StateClusters | None, verdict: str, fact: str
) -> None:
    cloud.clusters = [cluster]
    found = findings(cloud, environment(), state)["cluster research"]
    assert found.verdict == verdict
    assert re.search(fact, found.fact)


LED = "restore cluster.cloud, cluster.region or the OS_ variables, which selected"


@pytest.mark.parametrize(
    ("place", "what", "led"),
    [
        (ClusterPlace("q" * 32, "cern"), f"project {'q' * 32}", f"project {PROJECT}"),
        (ClusterPlace(PROJECT, "other"), "region other", "region cern"),
    ],
)
@pytest.mark.parametrize(
    "others", [[], [{**CLUSTER, "uuid": "c-2"}]], ids=["alone", "beside one of that name"]
)
def test_a_cluster_of_another_project_or_region_is_not_taken_for_none_yet(
    cloud: FakeCloud, place: ClusterPlace, what: str, led: str, others: list[dict[str, Any]]
) -> None:
    cloud.clusters = others
    state = StateClusters(frozenset({"c-1"}), False, {"c-1": place})
    found = findings(cloud, environment(), state)["cluster research"]
    fact = f"the stack's state has c-1 in {what}, but the credentials are for {led}"
    expect(found, "FAIL", fact, f"{LED} {what.split()[1]}")


def test_a_cluster_that_somebody_deleted_is_gone_and_its_name_may_be_taken(cloud: FakeCloud) -> None:
    gone = StateClusters(frozenset({"c-1"}), False, {"c-1": ClusterPlace(PROJECT, "cern")})
    found = findings(cloud, environment(), gone)["cluster research"]
    expect(found, "SKIP", "the stack's state has c-1, but Magnum no longer has this cluster")
    cloud.clusters = [{**CLUSTER, "uuid": "c-2"}]
    assert findings(cloud, environment(), gone)["cluster research"].verdict == "FAIL"


def test_the_state_says_where_its_clusters_are(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: tried\nruntime: python\n")
    paths = Paths(tmp_path, tmp_path / ".gpuform", tmp_path / "cache")
    file = EngineFiles(paths).checkpoint("tried", "research")
    file.parent.mkdir(parents=True)
    resource = {
        "urn": f"urn:pulumi:research::tried::{project.CLUSTER}::c",
        "type": project.CLUSTER,
        "id": "c-1",
    }
    there = {"outputs": {"projectId": PROJECT, "region": "cern", "kubeconfig": {"ciphertext": "x"}}}
    for more, places in (
        (there, {"c-1": ClusterPlace(PROJECT, "cern")}),
        ({"outputs": {"name": "research"}}, {"c-1": ClusterPlace()}),
        ({**there, "pendingReplacement": True}, {}),
    ):
        file.write_text(json.dumps({"checkpoint": {"latest": {"resources": [{**resource, **more}]}}}))
        assert clusters_in_state(paths, "research") == StateClusters(frozenset({"c-1"}), False, places)


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
    ("where", "named"), [("hidden", "fedora-coreos-39"), ("hidden", "i-0"), ("community", "i-0")]
)
def test_an_image_that_glance_does_not_list_is_found_as_magnum_finds_it(
    cloud: FakeCloud, where: str, named: str
) -> None:
    setattr(cloud, where, [IMAGE | {"id": "i-0", "name": "fedora-coreos-39"}])
    found = findings(cloud, environment(T4 | {"openstack": {"image": named}}))[f"image {named}"]
    expect(found, "PASS", "os_distro fedora-coreos")


def test_denied_service_is_skipped(cloud: FakeCloud) -> None:
    cloud.refused = {"octavia": 403, "neutron": 500}
    found = findings(cloud, environment_in_network(cloud))
    denied = "not checked: the caller has no permission for GET "
    expect(found["quota of load balancers"], "SKIP", denied)
    expect(found["quota of ports"], "SKIP", "HTTP 500")
    expect(found["network inside"], "SKIP", "HTTP 500")


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
    expect(found, verdict, fact)
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
    expect(found, verdict, fact)
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
def test_cluster_api_charts_bring_operator_and_discovery(
    cloud: FakeCloud, operator: dict[str, Any], verdict: str, fix: str
) -> None:
    found = findings(cloud, environment(T4, driver="capi", operator=operator))
    assert (found[CHARTS].verdict, found[CHARTS].fix) == (verdict, fix)
    assert LABEL not in found
    cloud.clusters = [CLUSTER]
    assert findings(cloud, environment(T4, driver="capi", operator=operator), OURS)[CHARTS].verdict == "PASS"


@pytest.mark.parametrize("distro", ["fedora-coreos", "flatcar"])
def test_image_without_nvidia_driver_images_is_refused(cloud: FakeCloud, distro: str) -> None:
    cloud.images = [IMAGE | {"os_distro": distro}]
    found = findings(cloud, environment())[DRIVER]
    fact = f"os_distro is {distro}, for which NVIDIA publishes no driver images"
    expect(found, "FAIL", fact, "gpu_operator.driver: host")
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


def test_template_distro_counts_without_its_image(cloud: FakeCloud) -> None:
    _template(cloud, cluster_distro="fedora-coreos")
    assert findings(cloud, environment())[DRIVER].verdict == "FAIL"
    _template(cloud, cluster_distro=None)
    assert findings(cloud, environment())[DRIVER].verdict == "SKIP"
