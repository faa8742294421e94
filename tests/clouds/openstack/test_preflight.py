"""The preflight of an OpenStack project, on a made-up cloud: what passes, what stops it, its messages."""

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
from tests.clouds.openstack.environments import CLUSTER, IMAGE, environment, findings
from tests.clouds.openstack.fake_cloud import PROJECT, FakeCloud, flavor, limits, template

pytestmark = pytest.mark.tools


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
    ],
)  # fmt: skip
def test_one_thing_that_is_wrong_fails_and_says_what_mends_it(
    cloud: FakeCloud, has: dict[str, Any], subject: str, fact: str, fix: str
) -> None:
    for name, value in has.items():
        setattr(cloud, name, value)
    found = findings(cloud, environment())
    assert found[subject].verdict == "FAIL"
    assert fact in found[subject].fact
    assert fix in found[subject].fix


def test_where_nothing_can_be_asked_the_rest_is_not(cloud: FakeCloud) -> None:
    cloud.newest = "1.7"
    found = findings(cloud, environment())
    rest = list(found.values())[4:]
    assert {(one.verdict, one.fact) for one in rest} == {("SKIP", "not checked: see Magnum's API")}
    assert not [one for one in cloud.requests if "clusters" in one or "nova" in one]


@pytest.mark.parametrize("answer", [{"quota": {}}, None])
def test_a_service_that_does_not_say_its_quotas_is_no_failure(
    cloud: FakeCloud, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    before = cloud._neutron
    monkeypatch.setattr(
        cloud, "_neutron", lambda path, method: answer if "quotas" in path else before(path, method)
    )
    found = findings(cloud, environment())["quota of ports"]
    assert found.verdict == "SKIP"
    assert found.fact.startswith("not known: the service's answer has no ")


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
    assert (region.verdict, region.fact) == ("FAIL", "the catalogue has no elsewhere")
    assert region.fix.endswith("cern")
    old = findings(cloud, environment({"name": "old", "machine": "g2.xlarge", "nodes": 1}))[
        "flavor g2.xlarge"
    ]
    assert (old.verdict, old.fact) == ("SKIP", "4 vCPUs, 16 GiB; deprecated by its cloud")
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
def test_the_owner_of_a_cluster_of_the_same_name(
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
    assert (found.verdict, found.fact, found.fix) == ("FAIL", fact, f"{LED} {what.split()[1]}")


def test_a_cluster_that_somebody_deleted_is_gone_and_its_name_may_be_taken(cloud: FakeCloud) -> None:
    gone = StateClusters(frozenset({"c-1"}), False, {"c-1": ClusterPlace(PROJECT, "cern")})
    found = findings(cloud, environment(), gone)["cluster research"]
    fact = "the stack's state has c-1, but Magnum no longer has this cluster"
    assert (found.verdict, found.fact) == ("SKIP", fact)
    cloud.clusters = [{**CLUSTER, "uuid": "c-2"}]
    assert findings(cloud, environment(), gone)["cluster research"].verdict == "FAIL"


def test_the_state_says_where_its_clusters_are(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: tried\nruntime: python\n")
    paths = Paths(tmp_path, tmp_path / ".gpuform", tmp_path / "cache")
    file = EngineFiles(paths).checkpoint("tried", "research")
    file.parent.mkdir(parents=True)
    urn = "urn:pulumi:research::tried::openstack:containerinfra/cluster:Cluster::research-cluster"
    resource = {
        "urn": urn,
        "type": project.CLUSTER,
        "custom": True,
        "id": "c-1",
        "inputs": {"name": "research"},
    }
    there = {"outputs": {"projectId": PROJECT, "region": "cern", "kubeconfig": {"ciphertext": "x"}}}
    for more, places in (
        (there, {"c-1": ClusterPlace(PROJECT, "cern")}),
        ({"outputs": {"name": "research"}}, {"c-1": ClusterPlace()}),
        ({**there, "pendingReplacement": True}, {}),
    ):
        file.write_text(json.dumps({"checkpoint": {"latest": {"resources": [{**resource, **more}]}}}))
        assert clusters_in_state(paths, "research") == StateClusters(frozenset({"c-1"}), False, places)
