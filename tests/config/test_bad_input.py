"""What the tables of bad input (bad_*.yaml) cannot say of an environment in one line."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.base.errors import InputError
from infra.model.checks import queues
from infra.model.checks.environment import warnings
from infra.model.placement.queue_limits import Limit, Limits
from tests.build.edits import changed, message
from tests.build.environments import declared, on
from tests.config.tables import GOOD, SERVED, T4, operated

pytestmark = pytest.mark.unit


def change(path: str, value: Any) -> dict[str, Any]:
    """The good environment with one change; ``...`` removes the field."""
    return changed(
        GOOD["embedded"], {"at": path, "remove": True} if value is ... else {"at": path, "put": value}
    )


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    mapping = change("pools/0", {"name": "t4", "nodes": 1, "gpu": {"models": ["T4", "A100-40G"], "count": 1}})
    text = message(mapping)
    assert text.startswith("pools[0].gpu.models[1]: unknown GPU 'A100-40G'; did you mean A100-40GB? known: ")
    assert "RTX PRO 6000" in text
    assert "H200" in text


def test_two_workloads_with_one_name() -> None:
    mapping = changed(GOOD["embedded"])
    mapping["workloads"].append(dict(mapping["workloads"][0]))
    assert message(mapping) == (
        "workloads[1].name: 'work' is also workloads[0] of namespace 'default'; "
        "give each workload a name of its own"
    )
    mapping["workloads"][1]["namespace"] = "other"
    assert len(parse(mapping).workloads) == 2


def test_an_existing_cluster_needs_selectors() -> None:
    mapping = changed(GOOD["embedded"])
    mapping["cluster"] = {"kind": "existing", "kubeconfig": "/k"}
    for pool in mapping["pools"]:
        del pool["nodes"]
    missing = "pools[0].selector: missing; give the labels by which the pool's nodes are found"
    assert message(mapping, 3) == missing
    mapping["pools"][0]["selector"] = {}
    assert message(mapping, 3) == "pools[0].selector: is empty; give at least one"


@pytest.mark.parametrize(("value", "what"), [(None, "nothing"), ([], "a list"), ("x", "the text 'x'")])
def test_an_environment_that_is_no_mapping(value: Any, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(value, "Pulumi.x.yaml")
    assert str(caught.value) == (
        f"Pulumi.x.yaml: gpuform:environment holds {what}; it must hold keys: name, cluster, pools, ..."
    )


def test_under_the_strategy_single_no_slice_has_a_name() -> None:
    mapping = change("gpu_operator", {"mig_strategy": "single"})
    mapping["pools"][1]["sharing"]["layout"] = "all-1g.5gb"
    mapping["workloads"][0].update({"pool": "mig", "slice": "1g.5gb"})
    assert message(mapping) == "workloads[0].slice: pool mig offers no slice '1g.5gb'; leave it out"
    del mapping["workloads"][0]["slice"]
    assert parse(mapping).workloads[0].slice is None


@pytest.mark.parametrize("cpu", ["9" * 309, "9" * 400 + "m", "9" * 5000, "1" * 20 + ".5"])
def test_an_amount_has_as_many_digits_as_a_quantity_can_hold(cpu: str) -> None:
    assert "is not an amount of CPU" in message(change("workloads/0/cpu", cpu))
    assert "is not an amount of memory" in message(change("workloads/0/memory", cpu.rstrip("m") + "Gi"))


G4DN = {"name": "t4", "machine": "g4dn.xlarge", "nodes": 1}
NEWEST = ["CVE-2026-24260"]
ALL = ["CVE-2024-0132", "CVE-2025-23359", "CVE-2025-23266", *NEWEST]
FINE: list[dict[str, Any]] = [
    {"operator": {"version": "v26.3.2"}},
    {"operator": {"version": "v25.3.1", "acknowledge": NEWEST}},
    {"operator": {"version": "v28.12.0"}},
    {"operator": {"version": "v24.3.0", "acknowledge": ALL}},
    {"operator": {"toolkit_version": "1.15.0", "acknowledge": ALL}},
    {"operator": {"toolkit_version": "1.19.1"}},
    {"operator": {"toolkit_version": "1.17.8", "acknowledge": NEWEST}},
    {"operator": {"driver_version": "450.80.02", "kernel_modules": "proprietary"}},
    {"operator": {"upgrade": {"auto": False}, "cdi": False}},
    {"operator": {"upgrade": {"max_parallel": 3, "max_unavailable": 2, "drain": {}}}},
    {"operator": {"driver": "host", "toolkit_version": "1.19.1"}},
    {"operator": {"toolkit_env": {"RUNTIME_CONFIG_SOURCE": "command,file=/etc/containerd/config.toml"}}},
    {"operator": {"version": "v26.3.2", "toolkit_env": {"CONTAINERD_CONFIG": "/etc/k3s/config.toml"}}},
    {"cluster": "embedded", "operator": {"toolkit_env": {"RUNTIME_RESTART_MODE": "systemd"}}},
    {"operator": {"toolkit": "host", "driver_version": "580.95.05"}},
    {"operator": {"mode": "device_plugin", "version": "0.19.0", "cdi": False}},
    {"cluster": "embedded", "operator": {"mode": "device_plugin"}},
    {"cluster": "embedded", "operator": {"toolkit_version": "1.19.1", "kernel_modules": "open"}},
    {"cluster": "aws", "operator": {"mode": "device_plugin"}, "pools": [G4DN]},
    {"cluster": "aws", "operator": {"version": "v26.3.2", "cdi": False}},
    {"cluster": "hosts", "operator": {"version": "v26.3.2"}},
]  # fmt: skip


@pytest.mark.parametrize("row", FINE, ids=[str(index) for index in range(len(FINE))])
def test_what_is_fine_means_the_same_once_it_is_resolved(row: dict[str, Any]) -> None:
    env = parse(operated(row))
    assert parse(env.resolved()).resolved() == env.resolved()


def test_without_the_block_its_namespace_is_free() -> None:
    work = {"name": "w", "namespace": "monitoring", "kind": "pod", "pool": "t4", "image": "a:1"}
    assert parse({**declared("embedded", T4), "workloads": [work]}).monitoring is None


@pytest.mark.parametrize("retention", ["2h", "24h", "1d"])
def test_a_day_is_kept_without_storage(retention: str) -> None:
    found = parse({**declared("existing", T4), "monitoring": {"retention": retention}}).monitoring
    assert found
    assert found.retention == retention


def test_a_cluster_without_a_default_class_needs_a_named_one() -> None:
    work = {"name": "a", "kind": "notebook", "editor": "vscode", "user": "a", "home": {"size": "1Gi"}}
    fact = "missing, and the cluster has no default class: the volume would never be created"
    expected = f"workloads[0].home.storage_class: {fact}; name one that it has, as gp2"
    assert message({**GOOD["aws"], "workloads": [work]}) == expected
    assert parse({**GOOD["openstack"], "workloads": [work]}), "the cloud may make a default class"
    work["home"] = {"size": "1Gi", "storage_class": "gp2"}
    assert parse({**GOOD["aws"], "workloads": [work]})


MODEL = "workloads/1/model"


def test_neither_good_one_gets_a_warning() -> None:
    assert [warnings(parse(GOOD["scaling"])), warnings(parse(SERVED))] == [(), ()]


def test_no_pods_are_allowed_if_the_query_counts_requests_without_them() -> None:
    query = "sum(rate(nginx_ingress_controller_requests[1m])) or vector(0)"
    edits = {"at": "workloads/1/scale/query", "put": query}, {"at": "workloads/1/scale/min", "put": 0}
    assert parse(changed(GOOD["scaling"], *edits))


PATHS = ("gs://models/a", "hf://org/model:main", "s3://a/b/", "pvc://claim", "pvc://claim/a/b")


@pytest.mark.parametrize("uri", [*PATHS, "https://models.example/a/model.tar.gz?versionId=1"])
def test_kserve_fetches_it(uri: str) -> None:
    words = {"at": "workloads/1/command", "put": ["tritonserver", "--model-repository", "/mnt/models/a"]}
    assert parse(changed(SERVED, {"at": f"{MODEL}/uri", "put": uri}, words))


BACKEND = "s3://team-state/gpu?region=eu-central-1"
KEY = "awskms://alias/gpuform?region=eu-central-1"


@pytest.mark.parametrize(
    "state",
    [
        {"backend": BACKEND, "secrets_provider": KEY},
        {"backend": "s3://team-state"},
        {"backend": "gs://team-state/gpu", "secrets_provider": "gcpkms://projects/p/locations/l/keyRings/r/cryptoKeys/k"},
        {"backend": "azblob://team-state", "secrets_provider": "azurekeyvault://team.vault.azure.net/keys/k"},
        {"backend": "file:///srv/state", "secrets_provider": "hashivault://gpuform"},
        {"backend": "file://~/state", "secrets_provider": "awskms:///arn:aws:kms:eu-central-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"},
        None,
    ],
)  # fmt: skip
def test_good_ones_come_back_as_declared(state: Any) -> None:
    found = on("existing", T4, state=state)
    assert (found.state.model_dump(exclude_none=True) if found.state else None) == state
    assert parse(found.resolved()) == found


def test_the_embedded_cluster_has_none_and_says_why() -> None:
    assert message(declared("embedded", T4, state={"backend": BACKEND})) == (
        "state: the embedded cluster exists on this machine only, so its state cannot be shared; "
        "leave state out, or declare a cluster that others can reach"
    )


QUEUES = GOOD["queues"]


def pools(count: int, **more: Any) -> dict[str, Any]:
    """An environment with that many pools, all in the quota of one team."""
    quota = {f"p{number}": 1 for number in range(count)}
    team = {"name": "all", "namespaces": ["all"], "quota": quota}
    given = [{"machine": "g2.5xlarge", **more}] * count
    return declared("existing", *given, queues={"teams": [team]})


def test_the_good_one_is_good() -> None:
    env = parse(QUEUES)
    assert warnings(env) == ()


def test_what_others_lend_counts_if_it_may_be_borrowed() -> None:
    """Science has 4 and arts, in a cohort above science's, lends 3: with no limit science can have 7."""
    seven = {"at": "workloads/0/parallelism", "put": 7}
    assert parse(changed(QUEUES, seven, {"at": "queues/teams/0/borrow", "put": {}}))
    assert "can have 6 at most" in message(changed(QUEUES, seven))


def test_deployments_in_queues_may_ask_for_more_than_the_pool_has_as_they_wait() -> None:
    """Two that borrow in turn; without queues the second would never have a place."""
    each = {"kind": "deployment", "pool": "t4", "replicas": 6, "image": "a:1"}
    two = [
        {"name": "a", "namespace": "science", "queue": "science", **each},
        {"name": "b", "namespace": "arts", "queue": "arts", **each, "replicas": 5},
    ]
    assert parse(changed(QUEUES, {"at": "workloads", "put": two}))
    free = [{key: value for key, value in item.items() if key != "queue"} for item in two]
    assert "workloads[1].replicas" in message(changed(QUEUES, {"at": "workloads", "put": free}))


def test_kueues_limits() -> None:
    """CRD and webhook of Kueue 0.19.2; with one resource, 64 pools are one group."""
    assert parse(pools(64)).queues
    assert message(pools(65)) == (
        "queues.teams[0].quota: names 65 pools, and a queue of Kueue has 64 at most; name fewer pools"
    )
    taints = [{"key": f"k{number}"} for number in range(8)]
    assert parse(pools(1, taints=taints[:7])).queues
    assert message(pools(1, taints=taints)) == (
        "queues.teams[0].quota.p0: its nodes have 9 taints, and a flavor of Kueue tolerates 8; "
        "give the pool fewer taints"
    )


def offering(*pools: int) -> Limits:
    """Pools that all offer r0, each with that many resources."""
    return {f"p{at}": {f"r{number}": Limit() for number in range(count)} for at, count in enumerate(pools)}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (offering(64), None),
        (offering(65), "65 resources in a group of pools"),
        (offering(*[1] * 31, 16), None),
        (offering(*[1] * 32, 16), "528 pairs of pool and resource in a group"),
        ({f"p{at}": {f"r{at}": Limit()} for at in range(16)}, None),
        ({f"p{at}": {f"r{at}": Limit()} for at in range(17)}, "17 groups of pools with the same resources"),
    ],
)
def test_kueues_limits_of_groups(limits: Limits, expected: str | None) -> None:
    if expected is None:
        queues.check_groups(limits)
        return
    with pytest.raises(InputError, match=expected):
        queues.check_groups(limits)


@pytest.mark.parametrize(("number", "expected"), [(4, False), (5, True)])
def test_a_quota_beyond_what_the_pool_can_become_is_a_warning(number: int, expected: bool) -> None:
    found = warnings(parse(changed(QUEUES, {"at": "queues/teams/1/quota/t4", "put": number})))
    fact = "the teams' quotas add up to 9 nvidia.com/gpu.shared or more, and the pool can have 8"
    assert found == (
        (f"queues.teams[1].quota.t4: {fact}; lower one, or allow more nodes",) if expected else ()
    )


def test_the_limit_of_an_elastic_pool_counts() -> None:
    aws = changed(GOOD["aws"])
    name = aws["pools"][0]["name"]
    aws["pools"][0] |= {"elastic": {"max": {"cpu": 16}}, "capacity": ["spot", "on_demand"]}
    team = {"name": "a", "namespaces": ["a"], "quota": {name: 1000}}
    (text,) = [item for item in warnings(parse({**aws, "queues": {"teams": [team]}})) if "queues" in item]
    assert text.startswith(f"queues.teams[0].quota.{name}: the teams' quotas add up to 1000 ")


def test_a_group_of_magnums_that_may_be_empty_needs_the_pools_label() -> None:
    magnum = changed(GOOD["openstack"])
    elastic = {"elastic": {"min": 0, "max": {"nodes": 2}}}
    pool = next(item for item in magnum["pools"] if "sharing" in item or "nodes" in item)
    pool.pop("nodes", None)
    pool |= elastic
    team = {"name": "a", "namespaces": ["a"], "quota": {pool["name"]: 1}}
    text = message({**magnum, "workloads": [], "queues": {"teams": [team]}}, 2)  # the other: of its GPUs
    assert text.startswith(f"queues.teams[0].quota.{pool['name']}: cluster-autoscaler does not know")


def test_a_number_in_place_of_a_section_is_an_unknown_key() -> None:
    mapping = changed(GOOD["queues"])
    mapping[8] = mapping.pop("queues")
    assert message(mapping, 2).startswith("8: unknown key; known: name, gpus")
