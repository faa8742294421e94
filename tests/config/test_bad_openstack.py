from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.config import parse
from infra.plan import scheduler
from tests.config.edits import changed, message

pytestmark = pytest.mark.unit

GOOD = yaml.safe_load((Path(__file__).parent / "good_openstack.yaml").read_text())
ROWS = yaml.safe_load((Path(__file__).parent / "bad_openstack.yaml").read_text())
change = partial(changed, GOOD)


def put(at: str, value: Any) -> dict[str, Any]:
    return {"at": at, "put": value}


def test_the_good_one_is_good() -> None:
    env = parse(GOOD)
    assert [pool.name for pool in env.pools] == ["t4", "a100", "v100s", "l40s", "cpu"]
    assert parse(env.resolved()) == env, "the declared text says the same again"
    assert [(pool.least, pool.most) for pool in env.pools] == [(2, 2), (1, 1), (1, 4), (1, 1), (0, 2)]


def test_a_flavor_that_the_cluster_declares_is_what_it_says() -> None:
    pool = parse(GOOD).pools[3]
    assert (pool.gpus[0].name, pool.gpu_count, pool.flavor and pool.flavor.memory) == ("L40S", 2, 128)
    own = {"gpu": "L4", "vcpu": 8, "memory_gib": 32}
    pool = parse(change(put("cluster/flavors/g2.5xlarge", own))).pools[0]
    assert (pool.gpus[0].name, pool.gpu_count, pool.flavor and pool.flavor.vcpu) == ("L4", 1, 8), (
        "it goes before the catalogue's of that name"
    )


@pytest.mark.parametrize("row", ROWS, ids=[row["what"] for row in ROWS])
def test_message(row: dict[str, Any]) -> None:
    assert message(change(row, *row.get("and", ()))) == row["said"]


def test_every_row_has_a_name_of_its_own() -> None:
    assert len({row["what"] for row in ROWS}) == len(ROWS) > 50


CAPI = (
    put("cluster/driver", "capi"),
    put("health", {"mode": "cordon"}),
    put("pools/0/name", "gpu-t4"),  # what the driver refuses or ignores is left out
    {"at": "pools/3/openstack", "remove": True},
    put("pools/4/elastic/min", 1),
)
CAPI_DRIVER = "Magnum's Cluster API driver"
GROUP = (
    f"{CAPI_DRIVER} takes only name, flavor, count and bounds of a node group, and ignores this; leave it out"
)
BALANCED = f"{CAPI_DRIVER} makes a load balancer for the API in any case; leave it out"
VOLUME = f"{CAPI_DRIVER} has no volume for containers; leave it out, or use labels: {{boot_volume_size: GIB}}"
ADDRESS = (
    f"{CAPI_DRIVER} gives nodes no floating IP; "
    "leave it out (label master_lb_floating_ip_enabled is for the API's)"
)
NAME = (
    "becomes a node group, whose name Cluster API's chart refuses; "
    "use 3 or more of a-z, 0-9 and -, with a letter first"
)
LEAST = f"{CAPI_DRIVER} refuses a minimum below 1, and scales no group from 0 nodes; use 1 or more"
BOUNDS = (
    "pools[2] is elastic, and without this label the driver ignores its bounds; "
    "leave it out, or give the pool nodes: N"
)
FLANNEL = f"{CAPI_DRIVER} has no flannel: no node would become ready; use calico or cilium"
VM = f"{CAPI_DRIVER} makes virtual machines only; leave it out"


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        ("pools/2/openstack", {"role": "gpu"}, f"pools[2].openstack.role: {GROUP}"),
        ("pools/2/openstack", {"image": "other"}, f"pools[2].openstack.image: {GROUP}"),
        ("pools/2/openstack", {"labels": {"gpuform.io/pool": "a"}}, f"pools[2].openstack.labels: {GROUP}"),
        ("pools/2/openstack", {"merge_labels": True}, f"pools[2].openstack.merge_labels: {GROUP}"),
        ("pools/2/openstack", {"docker_volume_gib": 9}, f"pools[2].openstack.docker_volume_gib: {GROUP}"),
        ("pools/4/elastic/min", 0, f"pools[4].elastic.min: {LEAST}"),
        (
            "cluster/labels",
            {"auto_scaling_enabled": False},
            f"cluster.labels.auto_scaling_enabled: {BOUNDS}",
        ),
        ("pools/0/name", "t4", f"pools[0].name: 't4' {NAME}"),
        ("pools/0/name", "4-t4", f"pools[0].name: '4-t4' {NAME}"),
        ("cluster/docker_volume_gib", 50, f"cluster.docker_volume_gib: {VOLUME}"),
        ("cluster/network", {"floating_ip": False}, f"cluster.network.floating_ip: {ADDRESS}"),
        ("cluster/masters/lb", False, f"cluster.masters.lb: {BALANCED}"),
        *[
            ("cluster/template", {"image": "ubuntu", key: value}, f"cluster.template.{key}: {said}")
            for key, value, said in (
                ("docker_volume_gib", 9, VOLUME),
                ("floating_ip", True, ADDRESS),
                ("master_lb", False, BALANCED),
                ("network_driver", "flannel", FLANNEL),
                ("server_type", "bm", VM),
            )
        ],
    ],
)
def test_what_the_cluster_api_driver_ignores_or_refuses(at: str, value: Any, said: str) -> None:
    assert message(change(*CAPI, put(at, value))) == said


@pytest.mark.parametrize("label", ["True", "yes", 1, True])
def test_the_cluster_api_driver_takes_what_it_reads(label: Any) -> None:
    own = {"image": "ubuntu", "master_lb": True, "network_driver": "cilium", "server_type": "vm"}
    edits = (put("cluster/template", own), put("cluster/masters/nodes", 3))
    assert parse(change(*CAPI, *edits, put("cluster/labels", {"auto_scaling_enabled": label}))).warnings == ()


def test_a_label_that_the_cluster_api_driver_does_not_read_is_warned_of() -> None:
    said = "cluster.labels.kube_tag: Magnum's Cluster API driver does not read this label; "
    said += "leave it out, unless your cloud's own driver reads it"
    labels = {"boot_volume_size": 20, "kube_tag": "v1.34.1", "nvidia_gpu_enabled": "false"}
    assert parse(change(*CAPI, put("cluster/labels", labels))).warnings == (said,)


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
    said = (
        f"pools[0].machine: {flavor} is deprecated, and may be unavailable when a node has to be replaced; "
        f"use {instead}"
    )
    env = parse(change(put("pools/0/machine", flavor), *CAPI))
    assert env.warnings == (said,)
    own = put(f"cluster/flavors/{flavor}", {"gpu": "T4", "vcpu": 4, "memory_gib": 16})
    mapping = change(put("pools/0/machine", flavor), *CAPI)
    mapping["cluster"]["flavors"][flavor] = own["put"]
    assert parse(mapping).warnings == (), "a declared flavor gets no warning"


def test_the_heat_driver_scales_no_pool() -> None:
    warned = parse(GOOD).warnings
    assert warned[0] == ALONE
    assert [line.partition(":")[0] for line in warned] == ["pools[2].elastic", "pools[4].elastic"]
    assert parse(change(*CAPI)).warnings == ()
    assert not parse({**GOOD, "cluster": {"kind": "embedded"}, "pools": [EMBEDDED], **WITHOUT}).warnings


EMBEDDED = {"name": "p", "machine": "g1.xlarge", "nodes": 1}
WITHOUT: dict[str, Any] = {"monitoring": None, "health": None, "scheduling": None}


@pytest.mark.parametrize(
    ("version", "given", "found"),
    [("1.34", None, "1.34.4"), ("1.30", "1.30.14", "1.30.14"), ("1.29", "1.29.0", "1.29.0")],
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


def test_a_template_of_our_own_is_taken() -> None:
    own = {
        "image": "fedora-coreos-40",
        "network_driver": "flannel",
        "volume_driver": "cinder",
        "master_lb": True,
    }
    env = parse(change(put("cluster/template", own), put("cluster/masters/nodes", 3)))
    assert env.cluster.kind == "openstack"
    assert env.cluster.own_template is not None
    assert env.cluster.own_template.image == "fedora-coreos-40"
    assert parse(env.resolved()) == env


@pytest.mark.parametrize("cluster", ["embedded", "existing", "aws", "hosts"])
def test_other_kinds_refuse_what_is_for_openstack(cluster: str) -> None:
    folder = Path(__file__).parent
    if cluster in ("aws", "hosts"):
        mapping = yaml.safe_load((folder / f"good_{cluster}.yaml").read_text())
    else:
        place: dict[str, Any] = {"nodes": 1} if cluster == "embedded" else {"selector": {"a": "b"}}
        kind = {"kind": cluster} if cluster == "embedded" else {"kind": cluster, "kubeconfig": "/k"}
        mapping = {"name": "t", "cluster": kind, "pools": [{"name": "p", "machine": "g4dn.xlarge", **place}]}
    assert parse(mapping)
    mapping["pools"][0]["openstack"] = {"role": "gpu"}
    assert message(mapping) == (
        "pools[0].openstack: the cluster is not on OpenStack; leave it out, or use cluster kind openstack"
    )
