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


CAPI = (put("cluster/driver", "capi"), put("health", {"mode": "cordon"}))
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
