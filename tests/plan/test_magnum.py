"""Arguments of Magnum's cluster and node groups, and which of them change in place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from infra.config import parse
from infra.model.openstack import changes
from infra.model.openstack.cluster import ClusterNetwork, Masters, OpenstackCluster, OpenstackPool, Workers
from infra.plan import magnum, sharing
from tests.build.openstack_stacks import BURST, T4, small

pytestmark = pytest.mark.unit

CPU: dict[str, Any] = {"name": "cpu", "machine": "m2.large", "nodes": 3}
T4X3 = {**T4, "nodes": 3}
FLAVORS = {"flavors": {"m2.large": {"vcpu": 4, "memory_gib": 8}}}


def test_the_sources_cluster_is_its_own_command_and_nothing_else() -> None:
    """FACTS, row 1: the template, one merged label, one master and one worker."""
    assert magnum.cluster(parse(small())) == {
        "name": "research",
        "create_timeout": 60,
        "labels": {"nvidia_gpu_enabled": "true"},
        "master_count": 1,
        "merge_labels": True,
        "node_count": 1,
    }


def test_the_sources_node_group_is_its_own_command_and_nothing_else() -> None:
    """FACTS, row 2: flavor and count; Magnum's default for the minimum of nodes is 0 as well."""
    env = parse(small())
    assert magnum.node_group(env, env.pools[0]) == {
        "name": "gpu-t4",
        "flavor_id": "g2.5xlarge",
        "min_node_count": 0,
        "node_count": 1,
    }


def test_everything_that_is_declared_of_the_cluster_is_said() -> None:
    env = parse(
        small(
            keypair="gpu-admins",
            network={"fixed_network": "net", "fixed_subnet": "sub", "floating_ip": False},
            masters={"nodes": 3, "flavor": "m2.medium", "lb": True},
            workers={"nodes": 2, "flavor": "m2.large"},
            labels={"kube_tag": "v1.30.2"},
            merge_labels=False,
            docker_volume_gib=50,
            timeout_minutes=90,
        )
    )
    assert magnum.cluster(env) == {
        "name": "research",
        "create_timeout": 90,
        "docker_volume_size": 50,
        "fixed_network": "net",
        "fixed_subnet": "sub",
        "flavor": "m2.large",
        "floating_ip_enabled": False,
        "keypair": "gpu-admins",
        "labels": {"kube_tag": "v1.30.2", "nvidia_gpu_enabled": "true"},
        "master_count": 3,
        "master_flavor": "m2.medium",
        "master_lb_enabled": True,
        "node_count": 2,
    }
    assert magnum.wait_minutes(env) == 95


@pytest.mark.parametrize(
    ("pools", "cluster", "found"),
    [
        ((CPU,), FLAVORS, {}),
        ((T4,), {}, {"nvidia_gpu_enabled": "true"}),
        ((T4,), {"labels": {"nvidia_gpu_enabled": False}}, {"nvidia_gpu_enabled": "false"}),
        ((BURST,), {}, {"nvidia_gpu_enabled": "true"}),
        ((BURST,), {"driver": "capi"}, {"auto_scaling_enabled": "true", "nvidia_gpu_enabled": "true"}),
        ((CPU,), {**FLAVORS, "labels": {"auto_scaling_enabled": True}}, {"auto_scaling_enabled": "true"}),
    ],
    ids=["no GPU", "a GPU", "as it is given", "elastic, heat", "elastic, capi", "elastic some day"],
)
def test_labels_follow_from_the_pools_unless_they_are_given(
    pools: tuple[dict[str, Any], ...], cluster: dict[str, Any], found: dict[str, str]
) -> None:
    env = parse(small(*pools, **cluster))
    assert magnum.labels(env) == found
    assert magnum.cluster(env).get("labels", {}) == found
    assert ("merge_labels" in magnum.cluster(env)) is bool(found)


def test_an_elastic_pool_begins_with_its_least_and_has_bounds() -> None:
    env = parse(small({**BURST, "openstack": {"role": "gpu", "image": "fcos-gpu", "docker_volume_gib": 80}}))
    assert magnum.node_group(env, env.pools[0]) == {
        "name": "burst",
        "docker_volume_size": 80,
        "flavor_id": "g4.p1.40g",
        "image_id": "fcos-gpu",
        "max_node_count": 4,
        "min_node_count": 1,
        "node_count": 1,
        "role": "gpu",
    }


@pytest.mark.parametrize(
    ("driver", "pools", "least"),
    [("capi", (T4X3, BURST), 3), ("capi", (T4X3,), 0), ("heat", (T4X3, BURST), 0)],
    ids=["beside a group that grows", "without one", "heat"],
)
def test_a_fixed_group_is_not_scaled_where_the_driver_scales_by_the_minimum(
    driver: str, pools: tuple[dict[str, Any], ...], least: int
) -> None:
    """magnum-capi-helm scales a group with different bounds (count: the maximum) and refuses 0."""
    env = parse(small(*pools, driver=driver))
    found = magnum.node_group(env, env.pools[0])
    assert (found["min_node_count"], found["node_count"], "max_node_count" in found) == (least, 3, False)


@pytest.mark.parametrize("merge", [True, False])
def test_a_groups_own_labels_come_on_top_of_the_clusters_or_instead(merge: bool) -> None:
    labels = {"boot_volume_size": 100}
    env = parse(small({**T4, "openstack": {"labels": labels, "merge_labels": merge}}))
    found = magnum.node_group(env, env.pools[0])
    assert found["labels"] == {"boot_volume_size": "100"}
    assert found.get("merge_labels", False) is merge


@pytest.mark.parametrize(
    ("driver", "label"),
    [("heat", "magnum.openstack.org/nodegroup"), ("capi", "capi.stackhpc.com/node-group")],
)
def test_nodes_are_found_by_the_label_of_the_clouds_driver(driver: str, label: str) -> None:
    env = parse(small(driver=driver))
    assert magnum.selector(env, env.pools[0]) == {label: "gpu-t4"}
    assert sharing.node_selector(env, env.pools[0]) == f"{label}=gpu-t4"
    assert magnum.upgrades(env) is (driver == "capi")


PARTS: dict[str, type[BaseModel]] = {"network": ClusterNetwork, "masters": Masters, "workers": Workers}


def test_every_field_has_a_row_with_its_source() -> None:
    fields = {name for name in OpenstackCluster.model_fields if name not in PARTS}
    fields |= {f"{part}.{name}" for part, model in PARTS.items() for name in model.model_fields}
    assert set(changes.CLUSTER) == fields
    own = {f"openstack.{name}" for name in OpenstackPool.model_fields}
    assert set(changes.POOL) == {"machine", "nodes", "elastic", *own}
    for table in (changes.CLUSTER, changes.POOL):
        assert all(len(change.source) > 15 for change in table.values())


def cluster(**changed: Any) -> magnum.GuardInputs:
    return magnum.cluster_guard(parse(small(**changed)))


FIXED = cluster()


@pytest.mark.parametrize(
    ("changed", "path", "value"),
    [
        ({"region": "other"}, "cluster.region", "other"),
        ({"keypair": "mine"}, "cluster.keypair", "mine"),
        ({"labels": {"kube_tag": "v1.30.2"}}, "cluster.labels.kube_tag", "v1.30.2"),
        ({"merge_labels": False}, "cluster.merge_labels", False),
        ({"masters": {"nodes": 3}}, "cluster.masters.nodes", 3),
        ({"masters": {"flavor": "m2.large"}}, "cluster.masters.flavor", "m2.large"),
        ({"masters": {"lb": False}}, "cluster.masters.lb", False),
        ({"workers": {"flavor": "m2.large"}}, "cluster.workers.flavor", "m2.large"),
        ({"network": {"fixed_network": "n"}}, "cluster.network.fixed_network", "n"),
        ({"network": {"floating_ip": True}}, "cluster.network.floating_ip", True),
        ({"docker_volume_gib": 50}, "cluster.docker_volume_gib", 50),
    ],
)
def test_what_only_a_new_cluster_changes_is_guarded(changed: dict[str, Any], path: str, value: Any) -> None:
    found = cluster(**changed).fixed
    assert FIXED.fixed.get(path) != value
    assert found == {**FIXED.fixed, path: value}


IN_PLACE: dict[str, Any] = {"workers": {"nodes": 4}, "timeout_minutes": 90, "cloud": "other"}
IN_PLACE |= {"version": "1.31", "allow_replace": True}


@pytest.mark.parametrize("key", IN_PLACE)
def test_what_changes_in_place_is_not(key: str) -> None:
    found = cluster(**{key: IN_PLACE[key]})
    assert (found.fixed, found.template) == (FIXED.fixed, FIXED.template)


def test_another_template_is_a_replacement_where_the_driver_has_no_upgrades() -> None:
    assert FIXED.template == {"cluster.template": "kubernetes-1.30.2-2"}
    assert cluster(driver="capi").template is None
    assert cluster(driver="capi").fixed == FIXED.fixed


@pytest.mark.parametrize(
    ("driver", "scaled"), [("heat", {}), ("capi", {"cluster.labels.auto_scaling_enabled": "true"})]
)
def test_the_first_gpu_and_the_first_elastic_pool_change_a_label_of_the_cluster(
    driver: str, scaled: dict[str, str]
) -> None:
    plain = {"name": "cpu", "machine": "m2.large", "nodes": 1}
    flavors = {"m2.large": {"vcpu": 4, "memory_gib": 8}}
    before = magnum.cluster_guard(parse(small(plain, driver=driver, flavors=flavors))).fixed
    after = magnum.cluster_guard(parse(small(plain, BURST, driver=driver, flavors=flavors))).fixed
    assert after == {
        **before,
        **scaled,
        "cluster.labels.nvidia_gpu_enabled": "true",
        "cluster.merge_labels": True,
    }


def test_the_last_elastic_pool_can_go_where_its_label_stays() -> None:
    before = magnum.cluster_guard(parse(small(T4, BURST, driver="capi"))).fixed
    labels = {"auto_scaling_enabled": True}
    after = magnum.cluster_guard(parse(small(T4, driver="capi", labels=labels))).fixed
    assert before == after


def test_a_pools_guard_has_its_path_and_what_its_group_is_made_of() -> None:
    environment = small(
        BURST, {**T4, "openstack": {"role": "gpu", "labels": {"x": 1}, "allow_replace": True}}
    )
    environment["workloads"] = [
        {"name": "notebook", "namespace": "lab", "kind": "pod", "pool": "gpu-t4", "image": "python:3.12"},
        {"name": "other", "namespace": "lab", "kind": "pod", "image": "python:3.12"},
    ]
    env = parse(environment)
    whole, burst, t4 = magnum.guards(env)
    assert t4 == magnum.GuardInputs(
        name="pool-gpu-t4",
        subject="node group gpu-t4",
        prefix="pools[1].",
        fixed={
            "machine": "g2.5xlarge",
            "openstack.labels.x": "1",
            "openstack.merge_labels": True,
            "openstack.role": "gpu",
        },
        template=None,
        allow="pools[1].openstack.allow_replace",
        allowed=True,
        lost=("1 node of g2.5xlarge", "pod lab/notebook"),
    )
    assert burst.lost == ("1 to 4 nodes of g4.p1.40g",)
    assert whole.lost == (
        "everything in its API server",
        "node group default-worker (1 node)",
        "node group burst (1 to 4 nodes of g4.p1.40g)",
        "node group gpu-t4 (1 node of g2.5xlarge)",
        "pod lab/notebook",
        "pod lab/other",
    )


@pytest.mark.parametrize("changed", [{"nodes": 3}, {"nodes": None, "elastic": {"max": {"nodes": 3}}}])
def test_the_number_of_nodes_is_no_replacement(changed: dict[str, Any]) -> None:
    pool = {key: value for key, value in {**T4, **changed}.items() if value is not None}
    before, after = parse(small(T4)), parse(small(pool))
    assert magnum.pool_guard(before, before.pools[0]).fixed == magnum.pool_guard(after, after.pools[0]).fixed
