"""The guards against losses in the program: what they compare, what waits for them, what is protected."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.base.guard_names import GUARD, RELEASES
from infra.plan import device_plugin, dra, gpu_operator, kserve, losses, monitoring, queues, scaling
from tests.build import aws_stacks, openstack_stacks
from tests.build.aws_stacks import waits_for
from tests.components.programs import hosts_alone
from tests.config.tables import SERVED
from tests.fakes.recorder import MAGNUM, Recorder, record, record_once

pytestmark = pytest.mark.unit

EKS, KEY, VPC = "aws:eks/cluster:Cluster", "aws:kms/key:Key", "aws:ec2/vpc:Vpc"
CLUSTER_GUARD, CONTENTS_GUARD = f"{GUARD} losses", f"{GUARD} losses-inside"
EXISTING: dict[str, Any] = {
    "name": "there",
    "cluster": {"kind": "existing", "kubeconfig": "/k", "context": "c"},
    "pools": [{"name": "a", "gpu": {"models": ["T4"], "count": 1}, "selector": {"rack": "7"}}],
    "workloads": [{"name": "w", "kind": "pod", "pool": "a", "image": "i:1", "namespace": "lab"}],
    "monitoring": {},
}
KINDS = {
    "aws": aws_stacks.stack("aws-dev"),
    "openstack": openstack_stacks.small(openstack_stacks.T4),
    "existing": EXISTING,
    "hosts": aws_stacks.stack("onprem-dev"),
}


def guard(recorder: Recorder, name: str) -> dict[str, Any]:
    return next(resource.inputs for resource in recorder.of(GUARD) if resource.name == name)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_cluster_is_guarded_before_anything_of_it_changes(kind: str) -> None:
    recorder = record_once(KINDS[kind])
    env = parse(KINDS[kind])
    assert [resource.name for resource in recorder.of(GUARD)] == ["losses", "losses-inside"]
    assert guard(recorder, "losses")["fixed"] == losses.cluster(env)
    inside = guard(recorder, "losses-inside")
    assert inside["namespaces"] == losses.namespaces(env)
    assert inside["kubeconfig"]
    for resource in recorder.resources:
        cloud = resource.type in ("pulumi:providers:aws", MAGNUM, "gpuform:hosts:HostConfiguration")
        if cloud or (kind == "existing" and resource.type == "pulumi:providers:kubernetes"):
            assert CLUSTER_GUARD in waits_for(recorder, resource), resource.name
        kinds = ("kubernetes:core/v1:Namespace", "gpuform:nodes:PoolNodes")
        if resource.type in kinds or "odeGroup" in resource.type:
            assert CONTENTS_GUARD in waits_for(recorder, resource), resource.name


def test_the_embedded_cluster_is_disposable() -> None:
    embedded = {**EXISTING, "cluster": {"kind": "embedded"}}
    embedded["pools"] = [{"name": "a", "machine": "g2.5xlarge", "nodes": 1}]
    assert not record(embedded).of(GUARD)


def test_hosts_that_leave_their_cluster_still_have_the_guard() -> None:
    """Without a kubeconfig the platform goes, with its namespaces."""
    inside = guard(record_once(hosts_alone()), "losses-inside")
    assert inside["namespaces"] == []
    assert "kubeconfig" not in inside


def protected(recorder: Recorder) -> set[str]:
    return {resource.type for resource in recorder.resources if resource.request.protect}


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (KINDS["aws"], {EKS, KEY, VPC}),
        ({**KINDS["aws"], "acknowledge_loss": ["aws-dev"]}, set()),
        ({**KINDS["aws"], "acknowledge_loss": ["g4dn-shared"]}, {EKS, KEY, VPC}),
        (KINDS["openstack"], {MAGNUM}),
        (openstack_stacks.small(openstack_stacks.T4, allow_replace=True), set()),
        (EXISTING, set()),
    ],
    ids=["aws", "acknowledged", "a pool", "openstack", "allowed", "existing"],
)
def test_plain_pulumi_destroys_no_cluster_network_or_key(
    environment: dict[str, Any], expected: set[str]
) -> None:
    assert protected(record(environment)) == expected


def test_a_renamed_environment_meets_the_guards_of_the_old_name() -> None:
    renamed = record({**KINDS["aws"], "name": "lab"})
    assert [resource.name for resource in renamed.of(GUARD)] == ["losses", "losses-inside"]
    assert losses.cluster(parse(KINDS["aws"])) != guard(renamed, "losses")["fixed"]


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"machine": "g5.xlarge"}, True),
        ({"nodes": 5}, False),
        ({"labels": {"team": "a"}}, False),
        ({"capacity": ["spot"]}, True),
        ({"zones": ["us-east-1a"]}, True),
    ],
)
def test_a_node_group_is_guarded_by_what_replaces_it(change: dict[str, Any], differs: bool) -> None:
    pool = {"name": "p", "machine": "g4dn.xlarge", "nodes": 2}
    before, after = (
        losses.pools(parse({**KINDS["aws"], "pools": [pool_], "workloads": []}))
        for pool_ in (pool, pool | change)
    )
    assert (before != after) is differs
    now = parse({**KINDS["aws"], "pools": [pool | change], "workloads": []})
    assert losses.may_lose({"pools": before}, now) is differs


def test_removed_queues_are_judged_before_anything_changes() -> None:
    team = {"name": "a", "namespaces": ["a"], "quota": {EXISTING["pools"][0]["name"]: 1}}
    queued = {**EXISTING, "queues": {"teams": [team]}}
    assert guard(record(queued), "losses-inside")["queues"] == ["a"]
    assert losses.may_lose({"queues": ["a"]}, parse(EXISTING))
    assert not losses.may_lose({"queues": ["a"]}, parse(queued))


def test_sizes_of_volumes_are_compared_before_anything_changes() -> None:
    storage = {"size": "50Gi", "class": "fast"}
    note = {
        "name": "ada",
        "kind": "notebook",
        "pool": "a",
        "namespace": "lab",
        "user": "eve",
        "editor": "vscode",
    }
    note |= {"home": {"size": "5Gi"}, "memory": "4Gi"}
    monitored = {**EXISTING, "monitoring": {"storage": storage}, "workloads": [*EXISTING["workloads"], note]}
    prometheus = "prometheus-monitoring-kube-prometheus-prometheus"
    volumes = guard(record(monitored), "losses-inside")["volumes"]
    assert volumes == {
        f"monitoring/{prometheus}-db-{prometheus}-0": {
            "size": "50Gi",
            "at": "monitoring.storage",
            "storage_class": "fast",
        },
        "lab/home-eve-ada-0": {"size": "5Gi", "at": "workloads[1].home"},
    }
    assert not losses.may_lose({"volumes": volumes}, parse(monitored))
    assert not losses.may_lose({}, parse(monitored)), "of an earlier version"
    larger = parse({**monitored, "monitoring": {"storage": {**storage, "size": "60Gi"}}})
    assert losses.may_lose({"volumes": volumes}, larger)


def test_releases_in_our_namespaces_are_known_as_ours() -> None:
    alone = parse({**EXISTING, "gpu_operator": {"mode": "device_plugin"}})
    claimed = parse(
        {**EXISTING, "pools": [{**EXISTING["pools"][0], "sharing": {"kind": "dra"}}], "workloads": []}
    )
    team = {"name": "a", "namespaces": ["a"], "quota": {EXISTING["pools"][0]["name"]: 1}}
    queued = parse({**EXISTING, "queues": {"teams": [team]}})
    releases = (
        *(gpu_operator.release(alone), device_plugin.release(alone), device_plugin.exporter_release(alone)),
        *(monitoring.release(alone), dra.release(claimed), queues.release(queued)),
        *(scaling.release(parse(SERVED)), *kserve.releases(parse(SERVED))),
    )
    assert {release_ and release_.name for release_ in releases} == set(RELEASES)
