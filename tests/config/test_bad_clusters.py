"""What bad_existing.yaml, bad_hosts.yaml and bad_openstack.yaml cannot say in one line."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.checks.environment import warnings
from infra.model.gpu import drivers
from infra.model.gpu.models import GPUS, ONLY_ARM64
from infra.plan import scheduler
from tests.build.edits import changed, message
from tests.build.environments import on
from tests.config import tables

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


HOSTS = tables.GOOD["hosts"]
on_hosts = partial(changed, HOSTS)


@pytest.mark.parametrize(
    ("version", "accepted"),
    [
        ("1.19.1", []),
        ("1.20.1", []),
        ("1.17.8", ["CVE-2026-24260"]),
        ("1.17.7", ["CVE-2025-23266", "CVE-2026-24260"]),
        ("1.17.3", ["CVE-2025-23266", "CVE-2025-23359", "CVE-2026-24260"]),
        ("1.15.0", ["CVE-2024-0132", "CVE-2025-23266", "CVE-2025-23359", "CVE-2026-24260"]),
    ],
)
def test_an_older_toolkit_is_let_through_by_every_vulnerability_it_has(
    version: str, accepted: list[str]
) -> None:
    edits = [{"at": "cluster/toolkit/version", "put": version}]
    for cve in accepted:
        others = [item for item in accepted if item != cve]
        assert cve in message(on_hosts(*edits, {"at": "cluster/acknowledge", "put": others}))
    env = parse(on_hosts(*edits, {"at": "cluster/acknowledge", "put": accepted}))
    assert env.resolved()["cluster"]["toolkit"]["version"] == version


def test_nothing_makes_1_18_0_acceptable() -> None:
    every = {"at": "cluster/acknowledge", "put": list(drivers.TOOLKIT_FIXES)}
    assert "overwrites the imports" in message(
        on_hosts({"at": "cluster/toolkit/version", "put": "1.18.0"}, every)
    )


@pytest.mark.parametrize("gone", ["context", "kubeconfig"])
def test_hosts_that_have_joined_nothing_are_declared_without_a_cluster(gone: str) -> None:
    mapping = on_hosts({"at": f"cluster/{gone}", "remove": True})
    if gone == "kubeconfig":
        del mapping["cluster"]["context"], mapping["workloads"]
    assert parse(mapping).has_cluster == (gone == "context")


def test_a_fingerprint_may_have_its_spaces() -> None:
    spaced = "eb69 3b30 35cd 5710 e231  e123 a4b4 6996 3bf8 63cc"
    mirror = {"url": "https://m.example", "suite": "./", "key": "k.asc", "fingerprint": spaced}
    env = parse(on_hosts({"at": "cluster/driver/repository", "put": mirror}))
    found = env.resolved()["cluster"]["driver"]["repository"]["fingerprint"]
    assert found == "EB693B3035CD5710E231E123A4B469963BF863CC"


def test_roles_install_nothing_on_arm64() -> None:
    pool = {"name": "p", "hosts": ["h"], "gpu": {"models": ["GH200"], "count": 1}}
    text = message({"name": "e", "cluster": {"kind": "hosts"}, "pools": [pool]})
    assert text == (
        "pools[0].gpu: GH200 is in arm64 hosts, and the roles install packages for x86_64; "
        "use cluster kind existing"
    )


@pytest.mark.parametrize("name", [name for name in GPUS if name not in ONLY_ARM64])
def test_a_gpu_takes_a_run_of_branches_without_a_hole(name: str) -> None:
    """From its first branch to its last one, which only Volta has; CUDA and MIG are not considered."""
    taken, refused = [], []
    for branch in drivers.BRANCHES:
        driver = {"source": "nvidia", "version": f"{branch}.999.99"}
        pool = {"name": "p", "hosts": ["h"], "gpu": {"models": [name], "count": 1}}
        try:
            parse({"name": "e", "cluster": {"kind": "hosts", "driver": driver}, "pools": [pool]})
        except InputError as error:
            refused.append(error)
        else:
            taken.append(branch)
    assert all(error.path == "cluster.driver.version" and name in error.fact for error in refused)
    first, last = drivers.BRANCHES.index(taken[0]), drivers.BRANCHES.index(taken[-1])
    assert tuple(taken) == drivers.BRANCHES[first : last + 1]
    assert taken[-1] == (580 if GPUS[name].family == "volta" else drivers.BRANCHES[-1])
    assert (taken[0] >= 570) == (GPUS[name].family == "blackwell")


T4 = {"machine": "g2.5xlarge"}
A100: dict[str, Any] = {"machine": "g4.p2.40g"}
SLICED = {"kind": "time_slicing", "replicas": 4}
KEPT_NAME = {**SLICED, "rename": False}
SEVEN = {"kind": "mig", "layout": "all-1g.5gb"}
SINGLE = {**SEVEN, "strategy": "single"}
SHARED = {**SINGLE, "share": {"replicas": 2, "rename": False}}
PRODUCT, COUNT, REPLICAS = (f"nvidia.com/gpu.{name}" for name in ("product", "count", "replicas"))
WAY, STRATEGY = "nvidia.com/gpu.sharing-strategy", "nvidia.com/mig.strategy"
CHANGED = "so the next update would not find its nodes; select by a label of your own"


def select(pool: dict[str, Any], key: str, value: str, **operator: Any) -> str:
    """The error; empty if the selector is accepted."""
    try:
        on("existing", {"name": "p", **pool, "selector": {key: value}}, gpu_operator=operator)
    except InputError as error:
        return str(error).removeprefix(f"pools[0].selector.{key}: ")
    return ""


@pytest.mark.parametrize(
    ("pool", "sharing", "key", "before", "after"),
    [
        (T4, KEPT_NAME, PRODUCT, "Tesla-T4", "Tesla-T4-SHARED"),
        (T4, {"kind": "mps", "replicas": 4}, PRODUCT, "Tesla-T4", "Tesla-T4-SHARED"),
        (A100, SINGLE, PRODUCT, "NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb"),
        (A100, SHARED, PRODUCT, "NVIDIA-A100-PCIE-40GB", "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb-SHARED"),
        (A100, SINGLE, COUNT, "2", "14"),
        (T4, SLICED, REPLICAS, "1", "4"),
        (A100, SHARED, REPLICAS, "1", "2"),
        (A100, SEVEN, REPLICAS, "1", "0"),
        (T4, SLICED, WAY, "none", "time-slicing"),
        (T4, {"kind": "mps", "replicas": 4}, WAY, "none", "mps"),
        (A100, SHARED, WAY, "none", "time-slicing"),
        (A100, SINGLE, STRATEGY, "mixed", "single"),
    ],
)
def test_a_label_that_sharing_changes_selects_only_by_its_later_value(
    pool: dict[str, Any], sharing: dict[str, Any], key: str, before: str, after: str
) -> None:
    shared = {**pool, "sharing": sharing}
    assert select(shared, key, before) == f"the pool's sharing changes {before!r} to {after}, {CHANGED}"
    assert select(shared, key, after) == ""
    if key != STRATEGY:
        assert select(pool, key, before) == ""
        assert select(pool, key, after).startswith(f"no node of the pool has {after!r}; use {before}")
        assert select(shared, key, f"{after}9").endswith("; select by a label of your own")


@pytest.mark.parametrize("name", ["memory", "multiprocessors", "slices.gi", "slices.ci", "engines.ofa"])
def test_a_label_that_strategy_single_sets_from_a_slice_selects_no_pool(name: str) -> None:
    key, fact = f"nvidia.com/gpu.{name}", "the pool's sharing changes '40536' to that of a slice"
    assert select({**A100, "sharing": SINGLE}, key, "40536") == f"{fact}, {CHANGED}"
    assert select({**A100, "sharing": SEVEN}, key, "40536") == ""
    assert select(A100, key, "40536", mig_strategy="single") == ""


@pytest.mark.parametrize(
    ("pool", "key", "value"),
    [
        ({**T4, "sharing": SLICED}, PRODUCT, "Tesla-T4"),
        ({**A100, "sharing": SEVEN}, PRODUCT, "NVIDIA-A100-PCIE-40GB"),
        ({**A100, "sharing": SEVEN}, COUNT, "2"),
        ({**A100, "sharing": {**SEVEN, "devices": [0]}}, REPLICAS, "1"),
        ({**A100, "sharing": SEVEN}, WAY, "none"),
        ({**A100, "sharing": {"kind": "dra"}}, PRODUCT, "NVIDIA-A100-PCIE-40GB"),
        ({**T4, "sharing": KEPT_NAME}, "nvidia.com/gpu.family", "turing"),
    ],
)
def test_what_sharing_leaves_as_it_is_selects_a_pool(pool: dict[str, Any], key: str, value: str) -> None:
    assert select(pool, key, value) == ""


@pytest.mark.parametrize(
    ("key", "value"), [(PRODUCT, "Tesla-T4"), (PRODUCT, "Tesla-T4-SHARED"), (REPLICAS, "4"), (WAY, "mps")]
)
def test_the_clusters_own_operator_may_share_them(key: str, value: str) -> None:
    assert select(T4, key, value, mode="existing") == ""
