"""Every resource of a program has a name of its own, whatever the names in an environment are made of."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.eks_cluster import admin_name
from components.workloads import workload_name
from tests.components.aws_stacks import small
from tests.components.recording import Recorder, record

pytestmark = pytest.mark.unit

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


def test_what_a_state_has_keeps_its_resource() -> None:
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
