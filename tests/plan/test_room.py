"""Priorities, quotas and spare nodes as declared."""

from __future__ import annotations

from typing import Any

import pytest

from infra.config import parse
from infra.model.environment import Environment
from infra.model.prices import PriceList
from infra.plan import room, workloads
from infra.plan.cost import bill
from infra.plan.played_nodes import manifests as played
from tests.plan.aws_environments import CLAIMED, COUNTS, SLICED, aws

pytestmark = pytest.mark.unit

WHOLE = {"machine": "g6.12xlarge"}
KEEP = {"kind": "time_slicing", "replicas": 3, "rename": True, "fail_requests_greater_than_one": False}


def changed(env: Environment, **more: Any) -> Environment:
    return parse({**env.resolved(), **more})


def asks(manifest: dict[str, Any]) -> dict[str, str]:
    limits = manifest["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]
    return {name: number for name, number in limits.items() if name != "memory"}


@pytest.mark.parametrize(
    ("pool", "pods", "each"),
    [
        ({**WHOLE, "spare": 2}, 2, {"nvidia.com/gpu": "4"}),
        # A pod may have only one share, so there is a placeholder for each share.
        ({**SLICED, "spare": 2}, 6, {"nvidia.com/gpu.shared": "1"}),
        ({**SLICED, "sharing": KEEP, "spare": 2}, 2, {"nvidia.com/gpu.shared": "3"}),
        ({**COUNTS, "spare": 1}, 3, {"nvidia.com/gpu.shared": "1"}),
        (
            {"machine": "p4d.24xlarge", "spare": 1,
             "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}},
            1,
            {"nvidia.com/mig-2g.10gb": "16", "nvidia.com/mig-3g.20gb": "8"},
        ),
    ],
)  # fmt: skip
def test_a_spare_node_is_held_whole(pool: dict[str, Any], pods: int, each: dict[str, str]) -> None:
    env = aws(pool)
    (found,) = room.placeholders(env)
    spec = found["spec"]["template"]["spec"]
    assert found["spec"]["replicas"] == room.pods(env) == pods
    assert asks(found) == each
    assert spec["terminationGracePeriodSeconds"] == 0
    assert spec["priorityClassName"] == "gpuform-placeholder"
    assert spec["nodeSelector"] == {"gpuform.io/pool": "p0"}
    assert {one["key"] for one in spec["tolerations"]} == {"nvidia.com/gpu"}
    assert found["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    # With a pod more than declared (Kubernetes' default), each change would start a node.
    assert found["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0
    assert "volumes" not in spec, "no workload, no image"
    (priority,) = room.priority_classes(env)
    assert priority["value"] < 0
    assert priority["preemptionPolicy"] == "Never"
    spaces = {one["metadata"]["name"]: one["metadata"]["labels"] for one in workloads.namespaces(env)}
    assert spaces["gpuform-placeholder"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_placeholders_are_packed_where_pods_are() -> None:
    env = changed(aws({**WHOLE, "spare": 1}), scheduling={"packer": True})
    assert room.placeholders(env)[0]["spec"]["template"]["spec"]["schedulerName"] == "gpuform-packer"


@pytest.mark.parametrize(
    ("version", "work", "pulled"),
    [
        # k8s.io/kubernetes, pkg/features/kube_features.go: ImageVolume is on by default from 1.35 on.
        ("1.34", {"pool": "p0"}, []),
        ("1.35", {"pool": "p0"}, ["registry.example.org/hub/library/serve:1"]),
        ("1.36", {"gpu": {"memory_gib": 20}}, ["registry.example.org/hub/library/serve:1"]),
        ("1.36", {"pool": "p1"}, []),
    ],
)
def test_a_spare_node_pulls_the_images_of_the_pools_workloads(
    version: str, work: dict[str, Any], pulled: list[str]
) -> None:
    twice = [{"kind": "deployment", "name": name, "image": "serve:1", **work} for name in ("a", "b")]
    env = aws({**WHOLE, "spare": 1}, SLICED, version=version, workloads=twice)
    env = changed(env, registries={"docker.io": "registry.example.org/hub"})
    (found,) = room.placeholders(env)
    spec = found["spec"]["template"]["spec"]
    assert [one["image"]["reference"] for one in spec.get("volumes", [])] == pulled
    (container,) = spec["containers"]
    assert "volumeMounts" not in container, "a mounted image is never deleted: the disk would fill up"


def test_images_that_are_pulled_ahead_are_each_a_volume_in_a_fixed_order() -> None:
    works = [
        {"kind": "job", "name": "b", "pool": "p0", "image": "train:2"},
        {"kind": "notebook", "name": "n", "pool": "p0", "editor": "vscode", "user": "ana"},
        {"kind": "pod", "name": "a", "pool": "p0", "image": "serve:1"},
    ]
    env = aws({**WHOLE, "spare": 1}, version="1.36", workloads=works)
    (found,) = room.placeholders(env)
    assert found["spec"]["template"]["spec"]["volumes"] == [
        {"name": "image-0", "image": {"reference": env.image(env.workloads[1].image)}},
        {"name": "image-1", "image": {"reference": "serve:1"}},
        {"name": "image-2", "image": {"reference": "train:2"}},
    ]


def test_spare_nodes_are_paid_for_and_played() -> None:
    without, spare = aws(WHOLE), aws({**WHOLE, "spare": 2})
    none, two = (bill(env, PriceList()).lines[1] for env in (without, spare))
    assert (none.least, none.low) == (0, 0.0)
    assert two.least == 2
    assert two.low == pytest.approx((two.high or 0.0) / two.most * 2)
    assert [len(played(env)) - len(played(without)) for env in (without, spare)] == [0, 2]


def test_a_quota_names_every_gpu_resource_of_the_environment() -> None:
    pools = [
        {"name": "t4", "machine": "g2.5xlarge", "nodes": 1,
         "sharing": {"kind": "time_slicing", "replicas": 4}},
        {"name": "mig", "machine": "g4.p1.40g", "nodes": 1,
         "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}}},
        {"name": "whole", "machine": "g4.p4.40g", "nodes": 1},
        {"name": "more", "machine": "g1.4xlarge", "nodes": 1},
    ]  # fmt: skip
    spaces = [
        {"name": "team", "quota": {"t4": 3, "mig": {"2g.10gb": 1}}},
        {"name": "default", "quota": {"whole": 2, "more": 1}},
        {"name": "none", "quota": {}},
    ]
    env = parse({"name": "e", "cluster": {"kind": "embedded"}, "pools": pools, "namespaces": spaces})
    found = {one["metadata"]["namespace"]: one["spec"]["hard"] for one in room.quotas(env)}
    nothing = {
        "requests.nvidia.com/gpu": "0",
        "requests.nvidia.com/gpu.shared": "0",
        "requests.nvidia.com/mig-2g.10gb": "0",
        "requests.nvidia.com/mig-3g.20gb": "0",
    }
    assert found["team"] == nothing | {
        "requests.nvidia.com/gpu.shared": "3",
        "requests.nvidia.com/mig-2g.10gb": "1",
    }
    assert found["default"] == nothing | {"requests.nvidia.com/gpu": "3"}, "the numbers add up"
    assert found["none"] == nothing
    made = [one["metadata"]["name"] for one in workloads.namespaces(env)]
    assert made == ["gpu-operator", "none", "team"], "default is there"


def test_claimed_gpus_are_counted_by_their_class() -> None:
    env = changed(aws(CLAIMED, SLICED), namespaces=[{"name": "team", "quota": {"p0": 2}}])
    (quota,) = room.quotas(env)
    assert quota["spec"]["hard"] == {
        "gpu.nvidia.com.deviceclass.resource.k8s.io/devices": "2",
        "requests.nvidia.com/gpu.shared": "0",
    }


def test_priorities_are_classes_that_pods_name() -> None:
    work = {"name": "ci", "kind": "job", "pool": "p0", "image": "a:1", "priority": "low"}
    env = aws(SLICED, workloads=[])
    env = changed(env, priorities={"high": 1000, "low": -10}, workloads=[work])
    found = {one["metadata"]["name"]: one for one in room.priority_classes(env)}
    assert {name: one["value"] for name, one in found.items()} == {"high": 1000, "low": -10}
    assert not any(one["globalDefault"] for one in found.values())
    (job,) = workloads.manifests(env)
    assert job["spec"]["template"]["spec"]["priorityClassName"] == "low"


def test_shares_of_slices_are_held_one_by_one_beside_whole_gpus() -> None:
    mig = {"kind": "mig", "layout": {"3g.20gb": 2}, "devices": [0, 1], "share": {"replicas": 2}}
    env = aws({"machine": "p4d.24xlarge", "spare": 1, "sharing": mig})
    found = {one["metadata"]["name"]: (one["spec"]["replicas"], asks(one)) for one in room.placeholders(env)}
    assert found == {
        "spare-p0": (1, {"nvidia.com/gpu": "6"}),
        "spare-p0-mig-3g-20gb-shared": (8, {"nvidia.com/mig-3g.20gb.shared": "1"}),
    }
    selectors = [one["spec"]["selector"]["matchLabels"] for one in room.placeholders(env)]
    assert len({str(one) for one in selectors}) == 2
    parts = {"3g.20gb": 1, "gpu": 2}
    (quota,) = room.quotas(changed(env, namespaces=[{"name": "team", "quota": {"p0": parts}}]))
    assert quota["spec"]["hard"] == {
        "requests.nvidia.com/gpu": "2",
        "requests.nvidia.com/mig-3g.20gb.shared": "1",
    }
