"""Arguments of Magnum's cluster, template and node groups: exactly what is declared."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.plan import magnum
from tests.components.openstack_stacks import BURST, T4, small, with_template

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
    """magnum-capi-helm scales a group whose bounds differ, the count being the maximum, and refuses 0."""
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


def test_a_template_of_our_own_is_named_after_its_content() -> None:
    env = parse(with_template())
    found = magnum.template(env)
    assert found is not None
    assert found == {
        "name": found["name"],
        "coe": "kubernetes",
        "external_network_id": "ext",
        "floating_ip_enabled": True,
        "image": "fedora-coreos-40",
        "labels": {"kube_tag": "v1.30.2"},
        "master_lb_enabled": False,
        "network_driver": "calico",
        "public": False,
        "server_type": "vm",
        "tls_disabled": False,
    }
    prefix, _, digest = found["name"].rpartition("-")
    assert (prefix, len(digest)) == ("research", 8)

    def name(**changed: Any) -> str:
        return str((magnum.template(parse(with_template(**changed))) or {})["name"])

    assert name(image="fedora-coreos-41") != found["name"]
    assert name(public=True) == found["name"]  # Magnum makes a template public once it is used
    assert magnum.template(parse(small())) is None


@pytest.mark.parametrize(
    ("driver", "label"),
    [("heat", "magnum.openstack.org/nodegroup"), ("capi", "capi.stackhpc.com/node-group")],
)
def test_nodes_are_found_by_the_label_of_the_clouds_driver(driver: str, label: str) -> None:
    env = parse(small(driver=driver))
    assert magnum.selector(env, env.pools[0]) == {label: "gpu-t4"}
    assert magnum.upgrades(env) is (driver == "capi")
