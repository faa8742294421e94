"""The loss guard's check: what is lost, what acknowledges it, and the messages."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from gpuform.kubernetes.client import Client
from gpuform.provider.guards.loss import LossGuard
from gpuform.provider.handler import Engine
from gpuform.provider.nodes.cluster import Cluster
from gpuform.provider.own.provider import GpuformProvider
from gpuform.provider.properties import UNKNOWN
from infra.model.base.guard_names import GUARD, REPORT, VARIABLE
from tests.fakes.client import OURS, FakeClient
from tests.provider.conftest import Log, call_for

pytestmark = pytest.mark.unit

CLUSTER: dict[str, Any] = {
    "environment": "dev",
    "fixed": {"cluster.kind": "aws", "name": "dev", "cluster.network.cidr": "10.0.0.0/16"},
    "lost": ["pool t4", "deployment lab/web"],
    "acknowledged": [],
}
T4 = {"nodes": "of a node group", "machine": ["g4dn.xlarge"], "capacity": "ON_DEMAND"}
INSIDE: dict[str, Any] = {
    **CLUSTER,
    "lost": [],
    "kubeconfig": "old",
    "pools": {"t4": T4, "burst": {"nodes": "of Karpenter"}},
    "namespaces": ["gpu-operator", "lab"],
}
REMEDY = "undo the change, or run 'gpuform up dev {}', or write acknowledge_loss: [{}] for this change"


@pytest.fixture
def played() -> FakeClient:
    client = FakeClient()
    client.node("t4-0", "t4")
    client.pod("train", "t4-0")
    client.add("persistentvolumeclaims", "data")
    return client


def check(
    olds: dict[str, Any],
    news: dict[str, Any],
    played: FakeClient | None = None,
    new_client: FakeClient | None = None,
) -> tuple[list[str], list[str]]:
    """Refusals and warnings; ``played`` answers for the last kubeconfig, ``new_client`` for a new one."""

    def cluster(inputs: dict[str, Any]) -> Cluster:
        client = {"old": played, "new": new_client}[inputs["kubeconfig"]]
        return Cluster(cast(Client, client))

    log = Log()
    checked = asyncio.run(LossGuard(cluster).check(call_for(GUARD, log), olds, news))
    return [reason for _, reason in checked.failures], log.lines


def without(key: str, *names: str, **more: Any) -> dict[str, Any]:
    declared = INSIDE[key]
    remaining = (
        {name: value for name, value in declared.items() if name not in names}
        if isinstance(declared, dict)
        else [name for name in declared if name not in names]
    )
    return {**INSIDE, key: remaining, **more}


@pytest.mark.parametrize(
    ("changed", "fact"),
    [
        ({"name": "lab"}, 'name: "dev" cannot become "lab"'),
        (
            {"cluster.network.cidr": "10.9.0.0/16"},
            'cluster.network.cidr: "10.0.0.0/16" cannot become "10.9.0.0/16"',
        ),
        ({"cluster.kind": "existing"}, 'cluster.kind: "aws" cannot become "existing"'),
    ],
)
def test_another_cluster_is_refused_by_the_name_of_the_old_one(changed: dict[str, str], fact: str) -> None:
    news = {**CLUSTER, "environment": "lab", "fixed": {**CLUSTER["fixed"], **changed}}
    lost = "everything in its API server, its volumes, pool t4, deployment lab/web"
    remedy = REMEDY.format("--acknowledge dev", "dev")
    assert check(CLUSTER, news) == ([f"cluster dev is replaced ({fact}), which loses: {lost}; {remedy}"], [])
    warning = f"cluster dev is replaced ({fact}), which loses: {lost}; acknowledged"
    assert check(CLUSTER, {**news, "acknowledged": ["dev"]}) == ([], [warning])


def test_a_new_guard_has_nothing_to_lose() -> None:
    assert check({}, CLUSTER) == ([], [])
    assert check({}, INSIDE) == ([], [])


@pytest.mark.parametrize(
    ("pools", "reason"),
    [
        ({}, "is deleted"),
        (
            {"t4": {**T4, "machine": ["g5.xlarge"]}},
            'gets other nodes (machine ["g4dn.xlarge"] to ["g5.xlarge"])',
        ),
        ({"t4": {"nodes": "of Karpenter"}}, 'gets other nodes (nodes "of a node group" to "of Karpenter")'),
    ],
)
def test_nodes_with_running_pods_are_not_taken(
    pools: dict[str, Any], reason: str, played: FakeClient
) -> None:
    news = {**INSIDE, "pools": {"burst": INSIDE["pools"]["burst"], **pools}, "kubeconfig": UNKNOWN}
    remedy = REMEDY.format("--acknowledge t4", "t4")
    assert check(INSIDE, news, played) == ([f"pool t4 {reason}, with running pods: lab/train; {remedy}"], [])


def test_a_pool_without_pods_goes(played: FakeClient) -> None:
    assert check(INSIDE, without("pools", "burst"), played) == ([], [])


def test_a_namespace_is_not_taken_with_what_others_have_in_it(played: FakeClient) -> None:
    remedy = REMEDY.format("--acknowledge lab", "lab")
    objects = "PersistentVolumeClaim data, Pod train"
    assert check(INSIDE, without("namespaces", "lab"), played) == (
        [f"namespace lab is deleted, with what the stack did not create: {objects}; {remedy}"],
        [],
    )
    assert check(INSIDE, without("namespaces", "gpu-operator"), played) == ([], [])


def test_a_queue_is_not_taken_from_the_workloads_of_others(played: FakeClient) -> None:
    played.add("localqueues", "q", spec={"clusterQueue": "science"})
    for kind, name, labels in (
        ("jobs", "own", OURS),
        ("pods", "own", OURS),
        ("jobs", "runs", {}),
        ("jobs", "waits", {}),
        ("pods", "other-stack", {**OURS, "gpuform.io/environment": "prod"}),
        ("jobs", "ended", {}),
    ):
        owner = played.add(kind, name, labels=labels)["metadata"]
        owners = [{"uid": owner["uid"], "kind": {"jobs": "Job", "pods": "Pod"}[kind], "name": name}]
        work = played.add("workloads", name, spec={"queueName": "q"}, ownerReferences=owners)
        if name == "runs":
            work["status"] = {"admission": {"clusterQueue": "science"}}
        if name == "ended":
            work["status"] = {"conditions": [{"type": "Finished", "status": "True"}]}
    olds = {**INSIDE, "queues": ["arts", "science"]}
    workloads = "Job lab/runs, Job lab/waits (waits), Pod lab/other-stack (waits)"
    remedy = REMEDY.format("--acknowledge science", "science")
    assert check(olds, {**INSIDE, "queues": ["arts"]}, played) == (
        [f"queue science is deleted, with workloads that the stack did not create: {workloads}; {remedy}"],
        [],
    )
    assert check(olds, {**INSIDE, "queues": ["science"]}, played) == ([], [])
    played.unreachable = "no route to host"
    assert "queue science is deleted, and what it holds is not known" in check(olds, INSIDE, played)[0][0]


def test_without_kueue_a_queue_holds_nothing(played: FakeClient) -> None:
    played.absent = ("workloads",)
    assert check({**INSIDE, "queues": ["science"]}, INSIDE, played) == ([], [])


@pytest.mark.parametrize(
    ("namespace", "plural"),
    [
        ("gpuform-keda", "scaledobjects"),
        ("gpuform-keda", "scaledjobs"),
        ("gpuform-kserve", "inferenceservices"),
        ("gpuform-kserve", "inferencegraphs"),
        ("kueue-system", "clusterqueues"),
    ],
)
def test_what_others_have_of_a_kind_goes_with_the_release_that_has_its_crd(
    namespace: str, plural: str, played: FakeClient
) -> None:
    olds = {**INSIDE, "namespaces": [*INSIDE["namespaces"], namespace]}
    played.add(plural, "ours", labels=OURS)
    assert check(olds, INSIDE, played) == ([], [])
    played.add(plural, "theirs", "other")
    (refused,), _ = check(olds, INSIDE, played)
    fact = f"is deleted, with what the stack did not create: {plural} other/theirs; "
    assert refused.startswith(f"namespace {namespace} {fact}")
    played.absent = (plural,)
    assert check(olds, INSIDE, played) == ([], [])


def test_a_cluster_that_does_not_answer_counts_as_a_loss(played: FakeClient) -> None:
    played.unreachable = "no route to host"
    news = {**without("namespaces", "lab"), "pools": {}}
    (refused,), _ = check(INSIDE, news, played)
    unread = "and what it holds is not known: the cluster cannot be read (no route to host)"
    for start in ("pool burst is deleted", "pool t4 is deleted", "namespace lab is deleted"):
        assert f"{start}, {unread}; " in refused
    options = "--acknowledge burst --acknowledge t4 --acknowledge lab"
    assert refused.endswith(REMEDY.format(options, "burst, t4, lab"))
    assert "no kubeconfig of it is known" in check({**INSIDE, "kubeconfig": None}, news)[0][0]


def test_names_come_from_the_file_and_from_the_command(
    played: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = {**without("namespaces", "lab"), "pools": {}, "acknowledged": ["lab"]}
    refused, _ = check(INSIDE, news, played)
    assert "pool t4" in refused[0]
    assert "namespace lab" not in refused[0]
    monkeypatch.setenv(VARIABLE, "t4 other")
    refused, warnings = check(INSIDE, news, played)
    assert not refused
    assert sorted(text.split(" ", 2)[1] for text in warnings) == ["lab", "t4"]


def test_an_entry_that_acknowledges_nothing_any_more_is_said(played: FakeClient) -> None:
    news = {**without("pools", "burst"), "acknowledged": ["burst", "lab", "typo"]}
    _, warnings = check(INSIDE, news, played)
    assert warnings == [
        f"acknowledge_loss: {name} acknowledges nothing (any more); remove it" for name in ("lab", "typo")
    ]


@pytest.mark.parametrize(
    ("uid", "lost"), [("one", False), ("two", True), ("", False)], ids=["same", "another", "silent"]
)
def test_another_kubeconfig_may_lead_to_another_cluster(uid: str, lost: bool, played: FakeClient) -> None:
    """The engine then deletes the namespaces in the old one; a file that was only moved changes nothing."""
    new_client = FakeClient()
    new_client.uid, new_client.unreachable = uid, "" if uid else "no route to host"
    olds = {**INSIDE, "fixed": {"cluster.kind": "existing"}, "pools": {}, "cluster": "one"}
    news = {key: value for key, value in olds.items() if key != "cluster"} | {"kubeconfig": "new"}
    refused, _ = check(olds, news, played, new_client)
    assert bool(refused) is lost
    if lost:
        assert refused[0].startswith("namespace lab is deleted, with what the stack did not create: Pers")


def test_the_identity_of_a_cluster_of_others_is_recorded(played: FakeClient) -> None:
    played.uid = "one"
    inputs = {**INSIDE, "fixed": {"cluster.kind": "hosts"}}
    guard = LossGuard(lambda inputs: Cluster(cast(Client, played)))
    call = call_for(GUARD)
    assert asyncio.run(guard.check(call, {}, inputs)).inputs["cluster"] == "one"
    assert "cluster" not in asyncio.run(guard.check(call, {}, INSIDE)).inputs
    played.unreachable = "no route to host"
    assert asyncio.run(guard.check(call, {**inputs, "cluster": "old"}, inputs)).inputs["cluster"] == "old"


def test_what_is_lost_with_the_cluster_is_told_once(played: FakeClient) -> None:
    """The guard of the cluster judges it; here the entry still counts."""
    moved = {**INSIDE["fixed"], "name": "lab"}
    news = {**without("namespaces", "lab"), "pools": {}, "fixed": moved, "acknowledged": ["dev"]}
    assert check(INSIDE, news, played) == ([], [])


def test_replacements_of_magnum_are_judged_by_their_own_guard(played: FakeClient) -> None:
    fixed = {"cluster.kind": "openstack"}
    olds = {**INSIDE, "fixed": fixed, "pools": {"t4": {"machine": "g2.xlarge"}}}
    news = {**olds, "pools": {"t4": {"machine": "g2.5xlarge"}}, "acknowledged": ["t4"]}
    assert check(olds, news, played) == ([], [])
    assert "pool t4 is deleted" in check(olds, {**news, "pools": {}, "acknowledged": []}, played)[0][0]


def test_a_preview_for_reviewers_tells_every_loss_and_goes_on(
    played: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"lab {REPORT}")
    refused, warnings = check(INSIDE, {**without("namespaces", "lab"), "pools": {}}, played)
    assert not refused
    assert [text.rpartition("; ")[2] for text in warnings] == ["not acknowledged", "acknowledged"]


CLAIM = "lab/data"
PATCH = """-p '{"spec": {"resources": {"requests": {"storage": "100Gi"}}}}'"""
GROW = f"first run `kubectl -n lab patch pvc data {PATCH}` if its class has allowVolumeExpansion, and wait"
ANEW = "first run `kubectl -n lab delete pvc data --wait=false` for a new and empty one"


def with_volume(size: str, storage_class: str | None = "gp2", **more: Any) -> dict[str, Any]:
    """Inputs of the guard, ``more`` among them, for an environment with a volume."""
    volume = {"at": "monitoring.storage", "size": size}
    volume |= {"storage_class": storage_class} if storage_class else {}
    return {**INSIDE, "volumes": {CLAIM: volume}, **more}


@pytest.fixture
def volume() -> FakeClient:
    """A cluster with a claim of 50Gi, and a volume that is somewhat larger."""
    client = FakeClient()
    spec = {"resources": {"requests": {"storage": "50Gi"}}, "storageClassName": "gp2"}
    client.add("persistentvolumeclaims", "data", spec=spec)["status"] = {"capacity": {"storage": "51Gi"}}
    return client


@pytest.mark.parametrize(
    ("size", "storage_class", "fact"),
    [
        ("51200Mi", "gp2", ""),
        ("51Gi", "gp2", ""),
        ("50Gi", None, ""),
        ("100Gi", "gp2", f"has 51Gi, which no update changes; write 51Gi, or {GROW}"),
        ("20Gi", "gp2", f"has 50Gi, which no update changes; write 50Gi, or {ANEW}"),
        ("50Gi", "gp3", f"has gp2, which no update changes; write gp2, or {ANEW}"),
    ],
)
@pytest.mark.parametrize(
    "olds", [{}, with_volume("50Gi"), {**INSIDE, "volumes": {}}], ids=["new", "changed", "left"]
)
def test_a_volume_that_exists_is_declared_as_it_is(
    olds: dict[str, Any], size: str, storage_class: str | None, fact: str, volume: FakeClient
) -> None:
    refusals = [f"monitoring.storage: the volume of claim data {fact}"] if fact else []
    assert check(olds, with_volume(size, storage_class), volume) == (refusals, [])


def test_a_volume_is_enlarged_before_its_size_is_declared(
    volume: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, f"data {REPORT}")
    olds, news = with_volume("50Gi"), with_volume("100Gi")
    (refused,), _ = check(olds, news, volume)
    assert refused.endswith(GROW), "no name acknowledges it"
    (claim,) = volume.objects["persistentvolumeclaims"]
    claim["spec"]["resources"]["requests"]["storage"] = "100Gi"
    assert check(olds, news, volume)[0], "requested, and not enlarged yet"
    claim["status"]["capacity"]["storage"] = "100Gi"
    assert check(olds, news, volume) == ([], [])


def test_a_claim_that_is_deleted_leaves_its_size_free(volume: FakeClient) -> None:
    olds, news = with_volume("50Gi"), with_volume("20Gi")
    (claim,) = volume.objects["persistentvolumeclaims"]
    claim["metadata"]["deletionTimestamp"] = "2026-11-29T10:00:00Z"
    assert check(olds, news, volume) == ([], [])
    assert check(olds, news, FakeClient()) == ([], [])


def test_without_an_answer_the_last_size_counts(volume: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    olds, news = with_volume("50Gi"), with_volume("20Gi")
    volume.unreachable = "no route to host"
    (refused,), _ = check(olds, news, volume)
    said = "which no update changes (as of the last update: the cluster cannot be read, no route to host); "
    assert said in refused
    assert check({}, news, volume) == ([], [])
    assert check(INSIDE, news, volume) == ([], []), "of an earlier version"
    assert check(olds, olds, volume) == ([], []), "nothing to ask"
    monkeypatch.setenv("GPUFORM_OFFLINE", "1")
    assert "has 50Gi" in check(olds, news, FakeClient())[0][0], "no claim is made"


def test_sizes_are_those_of_the_cluster_that_is_used_from_now_on(volume: FakeClient) -> None:
    volume.uid, fixed = "two", {"cluster.kind": "existing"}
    olds = with_volume("50Gi", fixed=fixed, cluster="one", namespaces=[], pools={})
    news = with_volume("20Gi", fixed=fixed, kubeconfig="new", namespaces=[], pools={})
    assert "has 50Gi" in check(olds, news, FakeClient(), volume)[0][0]
    volume.objects.clear()
    assert check(olds, news, FakeClient(), volume) == ([], [])


def test_the_provider_has_it_and_unknown_inputs_are_refused() -> None:
    assert isinstance(GpuformProvider(Engine()).handler(GUARD), LossGuard)
    (refused,), _ = check({}, {**CLUSTER, "poolz": {}})
    assert refused.startswith("is not an input; the inputs are environment, fixed, lost, acknowledged, ")
