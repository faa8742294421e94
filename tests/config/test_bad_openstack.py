from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from infra.config import parse
from infra.model.checks.environment import warnings
from infra.plan import scheduler
from tests.config import tables
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

GOOD = tables.GOOD["openstack"]
change = partial(changed, GOOD)


def put(at: str, value: Any) -> dict[str, Any]:
    return {"at": at, "put": value}


def test_the_good_one_is_good() -> None:
    env = parse(GOOD)
    assert [pool.name for pool in env.pools] == ["t4", "a100", "v100s", "l40s", "cpu"]
    assert [(pool.min_nodes, pool.max_nodes) for pool in env.pools] == [
        (2, 2),
        (1, 1),
        (1, 4),
        (1, 1),
        (0, 2),
    ]


def test_a_flavor_that_the_cluster_declares_is_what_it_says() -> None:
    pool = parse(GOOD).pools[3]
    assert (pool.gpus[0].name, pool.gpu_count, pool.flavor and pool.flavor.memory) == ("L40S", 2, 128)
    own = {"gpu": "L4", "vcpu": 8, "memory_gib": 32}
    pool = parse(change(put("cluster/flavors/g2.5xlarge", own))).pools[0]
    assert (pool.gpus[0].name, pool.gpu_count, pool.flavor and pool.flavor.vcpu) == ("L4", 1, 8), (
        "it goes before the catalogue's of that name"
    )


CAPI = tables.CAPI
GROUP = (
    "Magnum's Cluster API driver takes only name, flavor, count and bounds of a node group, "
    "and ignores this; leave it out"
)


@pytest.mark.parametrize("label", ["True", "yes", 1, True])
def test_the_cluster_api_driver_takes_what_it_reads(label: Any) -> None:
    edits = (put("cluster/masters/nodes", 3), put("cluster/labels", {"auto_scaling_enabled": label}))
    assert warnings(parse(change(*CAPI, *edits))) == ()


def test_a_label_that_the_cluster_api_driver_does_not_read_is_warned_of() -> None:
    expected = "cluster.labels.kube_tag: Magnum's Cluster API driver does not read this label; "
    expected += "leave it out, unless your cloud's own driver reads it"
    labels = {"boot_volume_size": 20, "kube_tag": "v1.34.1", "nvidia_gpu_enabled": "false"}
    assert warnings(parse(change(*CAPI, put("cluster/labels", labels)))) == (expected,)


def test_the_reported_environment_is_refused_though_it_follows_the_remedy_of_heat() -> None:
    """magnum-cluster-api#907: Magnum's labels of a group reach no node."""
    heat = (
        put("cluster/flavors/m2.mini", {"vcpu": 2, "memory_gib": 4}),
        put("pools/5", {"name": "mini", "machine": "m2.mini", "elastic": {"min": 0, "max": {"nodes": 2}}}),
        put("pools/5/openstack", {"labels": {"gpuform.io/pool": "mini"}}),
        put("workloads", [{"name": "web", "kind": "deployment", "pool": "mini", "image": "x:1"}]),
    )
    assert parse(change(*heat))
    assert message(change(*CAPI, *heat)) == f"pools[5].openstack.labels: {GROUP}"
    without = {"at": "pools/5/openstack", "remove": True}
    assert message(change(*CAPI, *heat, without)).startswith("pools[5].elastic.min: ")


ALONE = (
    "pools[2].elastic: Magnum's Heat driver scales no node group of a pool; "
    "run a cluster-autoscaler with --node-group-auto-discovery=magnum:role=worker"
)


@pytest.mark.parametrize(("flavor", "instead"), [("g1.xlarge", "g1.4xlarge"), ("g2.xlarge", "g2.5xlarge")])
def test_a_deprecated_flavor_is_warned_of(flavor: str, instead: str) -> None:
    expected = (
        f"pools[0].machine: {flavor} is deprecated, and may be unavailable when a node has to be replaced; "
        f"use {instead}"
    )
    env = parse(change(put("pools/0/machine", flavor), *CAPI))
    assert warnings(env) == (expected,)
    own = put(f"cluster/flavors/{flavor}", {"gpu": "T4", "vcpu": 4, "memory_gib": 16})
    mapping = change(put("pools/0/machine", flavor), *CAPI)
    mapping["cluster"]["flavors"][flavor] = own["put"]
    assert warnings(parse(mapping)) == (), "a declared flavor gets no warning"


def test_the_heat_driver_scales_no_pool() -> None:
    warned = warnings(parse(GOOD))
    assert warned[0] == ALONE
    assert [line.partition(":")[0] for line in warned] == ["pools[2].elastic", "pools[4].elastic"]
    assert warnings(parse(change(*CAPI))) == ()
    assert not warnings(parse({**GOOD, "cluster": {"kind": "embedded"}, "pools": [EMBEDDED], **WITHOUT}))


EMBEDDED = {"name": "p", "machine": "g1.xlarge", "nodes": 1}
WITHOUT: dict[str, Any] = {"monitoring": None, "health": None, "scheduling": None}


@pytest.mark.parametrize(
    ("version", "given", "found"),
    [("1.34", None, "1.34.10"), ("1.30", "1.30.14", "1.30.14"), ("1.29", "1.29.0", "1.29.0")],
)
def test_the_packing_scheduler_is_of_the_clusters_minor_version(
    version: str, given: str | None, found: str
) -> None:
    mapping = change(put("cluster/version", version), put("scheduling", {"packer": True, "version": given}))
    if given is None:
        del mapping["scheduling"]["version"]
    assert scheduler.version(parse(mapping)) == found


@pytest.mark.parametrize("mode", ["observe", "cordon", "ticket"])
def test_health_may_do_all_that_it_can(mode: str) -> None:
    health = parse(change(put("health", {"mode": mode}))).health
    assert health is not None
    assert health.mode == mode


def test_labels_are_texts_however_they_are_written() -> None:
    given = {"a": True, "b": 20, "c": "1.30", "d": False}
    labels = parse(change(put("cluster/labels", given))).resolved()["cluster"]["labels"]
    assert labels == {"a": "true", "b": "20", "c": "1.30", "d": "false"}


def test_an_empty_group_may_be_known_by_a_label_of_magnums() -> None:
    work = put("workloads", [{"name": "w", "kind": "pod", "pool": "cpu", "image": "a:1"}])
    assert "so cpu would stay empty" in message(change(work))
    assert parse(change(work, put("pools/4/openstack", {"labels": {"gpuform.io/pool": "cpu"}})))
    assert parse(change(work, put("pools/4/elastic/min", 1)))


def test_no_node_for_pods_without_gpus_is_warned_of() -> None:
    mapping = change(put("cluster/workers/nodes", 0), {"at": "pools/4", "remove": True})
    expected = "cluster.workers.nodes: no node takes the pods that request no GPU, such as the operator"
    assert any(line.startswith(expected) for line in warnings(parse(mapping)))
