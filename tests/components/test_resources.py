"""Each resource of a program: its fields are those of the SDK, its name is its own, its wait has a limit."""

from __future__ import annotations

import importlib
from collections import Counter
from configparser import ConfigParser
from itertools import product
from typing import Any

import pulumi
import pytest
import yaml
from google.protobuf.json_format import MessageToDict
from hypothesis import given
from hypothesis import strategies as st

from components.eks_cluster import admin_name
from components.manifest import KINDS, resource
from components.workloads import workload_name
from gpuform.provider.nodes import inputs, joining
from tests.build.aws_stacks import ROOT, small, stack
from tests.components.programs import STACKS
from tests.fakes.recorder import Recorded, Recorder, record, record_once, run

pytestmark = pytest.mark.unit

METADATA = {"metadata": {"name": "one", "labels": {"app.kubernetes.io/managed-by": "gpuform"}}}
"""Metadata of every object, with a key that is not a Python identifier."""
_ROLE = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}}
REQUIRED: dict[str, dict[str, Any]] = {
    "ClusterRoleBinding": _ROLE,
    "Deployment": {"spec": {"revisionHistoryLimit": 2}},
    "MutatingAdmissionPolicyBinding": {"spec": {"policyName": "a"}},
    "PriorityClass": {"value": 7},
    "ResourceClaimTemplate": {"spec": {"spec": {"devices": {}}}},
    "RoleBinding": _ROLE,
    "RuntimeClass": {"handler": "nvidia"},
    "StatefulSet": {"spec": {"revisionHistoryLimit": 2}},
    "StorageClass": {"provisioner": "simulator.gpuform.io/volumes"},
    "ValidatingAdmissionPolicyBinding": {"spec": {"policyName": "a"}},
}
"""Fields that the SDK's classes of these kinds require."""


def _by_the_sdk(name: str, manifest: dict[str, Any]) -> None:
    """Declare the object by the SDK's class of its kind, or by CustomResource."""
    version, kind = manifest["apiVersion"], manifest["kind"]
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
    group, _, number = version.rpartition("/")
    if (not group.endswith("k8s.io") and group not in ("", "apps", "batch", "policy")) or "kueue" in group:
        custom = importlib.import_module("pulumi_kubernetes.apiextensions").CustomResource
        custom(name, api_version=version, kind=kind, **body)
        return
    module = importlib.import_module(f"pulumi_kubernetes.{group.partition('.')[0] or 'core'}.{number}")
    python = {key.replace("R", "_r"): value for key, value in body.items()}
    getattr(module, kind)(name, **python)


@pytest.mark.parametrize(("version", "kind"), sorted(KINDS))
def test_manifest_is_declared_as_by_the_class_of_the_sdk(version: str, kind: str) -> None:
    manifest = {"apiVersion": version, "kind": kind, **METADATA, **REQUIRED.get(kind, {})}

    def program() -> None:
        _by_the_sdk("theirs", manifest)
        resource("ours", manifest, pulumi.ResourceOptions())

    requests = {request.name: request.request for request in run(program).resources}
    sdk, own = (
        (request.type, MessageToDict(request.object), request.version, request.pluginDownloadURL)
        for request in (requests["theirs"], requests["ours"])
    )
    assert own == sdk


def test_a_kind_that_is_not_declared_here_is_refused() -> None:
    with pytest.raises(KeyError, match="Secret"):
        resource("one", {"apiVersion": "v1", "kind": "Secret", **METADATA}, pulumi.ResourceOptions())


LABELS = st.from_regex(r"[ab]([ab-]{0,4}[ab])?", fullmatch=True)
NAMES = ("a", "a-b", "a--b", "b", "a-b-a", "b-a")
ACCOUNTS = st.sampled_from(["111122223333", "444455556666"])
PARTITIONS = st.sampled_from(["aws", "aws-cn", "aws-us-gov"])
PRINCIPALS = st.from_regex(r"(role|user)/[a/-]{1,5}", fullmatch=True)
ARNS = st.builds("arn:{}:iam::{}:{}".format, PARTITIONS, ACCOUNTS, PRINCIPALS)


@given(st.lists(st.tuples(LABELS, LABELS), unique=True))
def test_two_workloads_never_have_one_name(workloads: list[tuple[str, str]]) -> None:
    assert len({workload_name("w", *workload) for workload in workloads}) == len(workloads)


@given(st.lists(ARNS, unique=True))
def test_two_admins_never_have_one_name(arns: list[str]) -> None:
    assert len({admin_name("e", arn) for arn in arns}) == len(arns)
    assert not [name for name in (admin_name("e", arn) for arn in arns) if "::" in name]  # parts of a URN


def names(recorder: Recorder) -> Counter[tuple[str, ...]]:
    """Type, types of the parents, and name of each resource: what its URN has."""
    return Counter(
        (str(r.request.parent).split("::")[2] if r.request.parent else "", r.type, r.name)
        for r in recorder.resources
        if r.request is not None
    )


def pods(*pairs: tuple[str, str], **more: Any) -> list[dict[str, Any]]:
    return [{"name": name, "namespace": space, "image": "a:1", **more} for space, name in pairs]


def test_the_names_of_an_aws_program_are_unique() -> None:
    fixed = {"machine": "g4dn.xlarge", "nodes": 20, "sharing": {"kind": "time_slicing", "replicas": 2}}
    pools: list[dict[str, Any]] = [{"name": name, **fixed} for name in NAMES]
    elastic = {"machine": "m6i.xlarge", "elastic": {"max": {"cpu": 64}}, "capacity": ["spot", "on_demand"]}
    pools += [{"name": f"e-{name}", **elastic, "taints": [{"key": name, "value": "a"}]} for name in NAMES]
    roles = ("role/a/b", "role/a-b", "role/a", "user/a")
    arns = [
        f"arn:aws:iam::{account}:{role}" for account, role in product(("111122223333", "444455556666"), roles)
    ]
    environment = {
        **small(*pools, admins=arns),
        "workloads": pods(*product(NAMES, NAMES), kind="deployment", pool="a", service={"port": 80}),
        "namespaces": [{"name": name, "quota": dict.fromkeys(NAMES, 1)} for name in NAMES],
    }
    counts = names(record(environment))
    assert [name for name, count in counts.items() if count > 1] == []
    assert len([name for name in counts if name[1] == "aws:eks/accessEntry:AccessEntry"]) == len(arns) + 1
    assert len([name for name in counts if name[1] == "kubernetes:apps/v1:Deployment"]) >= len(NAMES) ** 2


def test_names_of_earlier_versions_are_aliases() -> None:
    """Names of earlier versions are aliases where they were others, unless another resource has them now."""
    arn = "arn:aws:iam::111122223333:role/a/b"
    pairs = [("x", "y"), ("a-b", "a"), ("a-b", "c"), ("a", "b-c")]
    environment = {
        **small({"name": "a", "machine": "g4dn.xlarge", "nodes": 1}, admins=[arn]),
        "workloads": pods(*pairs, kind="pod", pool="a"),
    }
    aliases = {
        r.name: sorted({alias.spec.name for alias in r.request.aliases} - {""})
        for r in record(environment).resources
        if r.type in ("gpuform:workloads:GpuPod", "aws:eks/accessEntry:AccessEntry") and r.request
    }
    assert aliases == {
        "labs-admin-111122223333:role/a/b": ["labs-admin-role-a-b"],
        "workloads-x-y": [],
        "workloads-a--b-a": ["workloads-a-b-a"],
        "workloads-a--b-c": [],
        "workloads-a-b-c": [],
    }


EXPLICIT = {
    "aws:eks/addon:Addon",
    "aws:eks/cluster:Cluster",
    "aws:eks/nodeGroup:NodeGroup",
    "kubernetes:apps/v1:Deployment",
    "kubernetes:core/v1:Pod",
    "openstack:containerinfra/cluster:Cluster",
    "openstack:containerinfra/nodeGroup:NodeGroup",
}
"""What is waited for until it works: minutes, or as long as its nodes need."""
BY_INPUT = {"kubernetes:helm.sh/v3:Release"}
"""``timeout``, in seconds."""
OWN_TYPES = {
    *("gpuform:nodes:GpuOperatorRemoval", "gpuform:nodes:PoolRemoval"),
    *("gpuform:nodes:MigLayout", "gpuform:nodes:PoolNodes", "gpuform:nodes:SimulatedNodes"),
    "gpuform:workloads:BlueGreen",
    *("gpuform:queues:KueueRemoval", "gpuform:workloads:ScalingRemoval"),
}
"""Have a limit in their inputs, or a default one (``gpuform/provider``)."""
BY_TASK = {"gpuform:hosts:HostConfiguration"}
"""Ansible: each task of each host."""
NOT_AWAITED = ("pulumi:", "gpuform:", "kubernetes:")
"""Components, and objects that are there with the API server's answer; a Service waits for ten minutes at
most (pulumi-kubernetes, ``provider/pkg/await``)."""
AWS_TYPES = {
    *("cloudwatch", "ec2/eip", "ec2/internetGateway", "ec2/launchTemplate", "ec2/natGateway"),
    *("ec2/placementGroup", "ec2/route", "ec2/securityGroup", "ec2/subnet", "ec2/tag", "ec2/vpc"),
    *("eks/access", "eks/podIdentityAssociation", "iam", "kms", "sqs", "vpc/securityGroupIngressRule"),
}
"""Resources of AWS that its provider waits for by its own limits: 40 minutes or less (its documentation)."""


def limits(resource: Recorded) -> tuple[str, str, str]:
    """Its own limits of a create, an update and a delete; empty where it has none."""
    timeouts = resource.request.customTimeouts
    return timeouts.create, timeouts.update, timeouts.delete


def has_provider_limit(kind: str) -> bool:
    return kind.startswith("aws:") and any(kind.startswith(f"aws:{prefix}") for prefix in AWS_TYPES)


@pytest.mark.parametrize("name", STACKS)
def test_everything_that_is_waited_for_has_a_limit(name: str) -> None:
    for item in record_once(STACKS[name]).resources:
        if item.type in EXPLICIT:
            create, update, delete = limits(item)
            assert create, item
            assert update, item
            assert delete or not item.type.startswith(("aws:", "openstack:")), item
        elif item.type in BY_INPUT:
            assert item.inputs["timeout"] > 0, item
        else:
            kind = item.type
            known = kind in OWN_TYPES | BY_TASK or kind.startswith(NOT_AWAITED) or has_provider_limit(kind)
            assert known, f"{kind}: add it to one of the lists above"


def test_our_own_resources_have_a_limit_without_a_declaration() -> None:
    assert (inputs.TIMEOUT_S, joining.TIMEOUT_S) == (600, 900)


def test_a_task_on_a_host_ends() -> None:
    config = ConfigParser()
    config.read(ROOT / "ansible/ansible.cfg")
    longest = [
        seconds
        for file in (ROOT / "ansible/roles").glob("*/defaults/main.yml")
        for key, seconds in yaml.safe_load(file.read_text()).items()
        if key.endswith("_timeout")
    ]
    assert config.getint("defaults", "task_timeout") > max(longest) > 0


@pytest.mark.parametrize(("nodes", "update"), [(1, "60m"), (2, "60m"), (3, "90m"), (16, "480m")])
def test_a_group_that_is_updated_node_by_node_has_time_for_each(nodes: int, update: str) -> None:
    """EKS evicts the pods of one node after another, each for up to 15 minutes; the provider's own limit is
    60 minutes for the whole group."""
    pool = {"name": "a100", "machine": "p4d.24xlarge", "nodes": nodes}
    groups = {group.name: limits(group) for group in record(small(pool)).of("aws:eks/nodeGroup:NodeGroup")}
    assert groups["mng-a100"] == ("60m", update, update)


def test_aws_resources_have_limits_of_create_update_and_delete() -> None:
    recorded = record_once(stack("aws-prod"))
    assert limits(recorded.one("aws:eks/cluster:Cluster")) == ("45m", "120m", "45m")
    assert {limits(resource) for resource in recorded.of("aws:eks/addon:Addon")} == {("20m", "20m", "40m")}
