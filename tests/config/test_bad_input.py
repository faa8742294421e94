"""Bad input: one table of (what is wrong, what is said); nothing of it reaches the engine."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from infra.config import parse
from infra.model.errors import InputError

pytestmark = pytest.mark.unit

A100 = {"machine": "g4.p1.40g"}
IMAGE = "tensorflow/tensorflow:2.12.0-gpu"


def good() -> dict[str, Any]:
    return {
        "name": "test",
        "cluster": {"kind": "embedded"},
        "pools": [
            {
                "name": "t4",
                "machine": "g2.5xlarge",
                "nodes": 1,
                "sharing": {"kind": "time_slicing", "replicas": 4},
            },
            {
                "name": "mig",
                "machine": "g4.p1.40g",
                "nodes": 1,
                "sharing": {"kind": "mig", "layout": {"3g.20gb": 1, "2g.10gb": 2}},
            },
            {"name": "cpu", "machine": "m6i.xlarge", "nodes": 1},
        ],
        "workloads": [{"name": "work", "kind": "pod", "pool": "t4", "image": IMAGE}],
    }


def change(path: str, value: Any) -> dict[str, Any]:
    """The good environment with one thing changed; ``...`` takes it out."""
    mapping: dict[str, Any] = good()
    here: Any = mapping
    *parents, last = [int(part) if part.isdigit() else part for part in path.split("/")]
    for part in parents:
        here = here[part]
    if value is ...:
        del here[last]
    else:
        here[last] = copy.deepcopy(value)
    return mapping


def message(mapping: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        parse(mapping)
    return str(caught.value)


def test_the_good_one_is_good() -> None:
    assert [pool.name for pool in parse(good()).pools] == ["t4", "mig", "cpu"]


TIME_SLICING = {"kind": "time_slicing", "replicas": 4}

EXACT = [
    ("nme", 1, "nme: unknown key; did you mean name? known: name, cluster, gpu_operator, pools, workloads"),
    ("pools/0/replicas", 4, "pools[0].replicas: unknown key; known: name, machine, gpu, nodes, selector, labels, taints, sharing"),
    (
        "pools/0/sharing/replica",
        4,
        "pools[0].sharing.replica: unknown key; did you mean replicas? known: kind, replicas, rename, fail_requests_greater_than_one",
    ),
    (
        "pools/0/sharing/replicas",
        1,
        "pools[0].sharing.replicas: 1 shares nothing; use 2 or more, or kind: exclusive",
    ),
    ("pools/0/sharing/replicas", 0, "pools[0].sharing.replicas: 0 is too small; use 2 or more"),
    ("pools/0/sharing/replicas", True, "pools[0].sharing.replicas: holds the truth value true; give a whole number"),
    ("pools/0/sharing/replicas", "4", "pools[0].sharing.replicas: holds the text '4'; give a whole number"),
    ("pools/0/sharing/replicas", ..., "pools[0].sharing.replicas: missing; add it"),
    ("pools/0/sharing/rename", "yes", "pools[0].sharing.rename: holds the text 'yes'; give true or false"),
    (
        "pools/0/sharing/kind",
        "timeslicing",
        "pools[0].sharing.kind: unknown kind 'timeslicing'; did you mean time_slicing? known: exclusive, time_slicing, mps, mig",
    ),
    ("pools/0/sharing", {"replicas": 4}, "pools[0].sharing.kind: missing; say which kind it is"),
    ("pools/0/sharing", [TIME_SLICING], "pools[0].sharing: holds a list; give a mapping, key: value"),
    (
        "pools/0/sharing",
        {"kind": "mps", "replicas": 49},
        "pools[0].sharing.replicas: 49 is too large; use 48 or less",
    ),
    (
        "pools/0/sharing",
        {"kind": "mps", "replicas": 1},
        "pools[0].sharing.replicas: 1 shares nothing; use 2 or more, or kind: exclusive",
    ),
    (
        "pools/0/sharing",
        {"kind": "mig", "layout": {"1g.5gb": 7}},
        "pools[0].sharing.kind: T4 has no MIG; use time_slicing or mps, or a GPU with MIG, for example A100-40GB",
    ),
    (
        "pools/1/sharing/layout",
        {"3g.20gb": 2, "1g.5gb": 1},
        "pools[1].sharing.layout: 2 x 3g.20gb + 1 x 1g.5gb takes 7 of 7 compute slices but 9 memory slices of 8, "
        "so A100-PCIE-40GB does not hold it; take slices out, or see which layouts fit with `gpuform gpus`",
    ),
    (
        "pools/1/sharing/layout",
        {"1g.6gb": 1},
        "pools[1].sharing.layout.1g.6gb: A100-PCIE-40GB has no such profile; did you mean 1g.5gb? "
        "known: 1g.5gb, 1g.5gb+me, 1g.10gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb",
    ),
    ("pools/1/sharing/layout", {}, "pools[1].sharing.layout: no slice is given; give {profile: number}, or use kind: exclusive"),
    ("pools/1/sharing/layout", {"1g.5gb": 0}, "pools[1].sharing.layout.1g.5gb: 0 is too small; use 1 or more"),
    (
        "pools/1/sharing/layout",
        "all-1g.6gb",
        "pools[1].sharing.layout: unknown layout 'all-1g.6gb' for A100-PCIE-40GB; did you mean all-1g.5gb? "
        "known: all-1g.5gb, all-1g.5gb+me, all-1g.10gb, all-2g.10gb, all-3g.20gb, all-4g.20gb, all-7g.40gb",
    ),
    (
        "pools/1/sharing",
        {"kind": "mps", "replicas": 2, "layout": {"1g.5gb": 7}},
        "pools[1].sharing.layout: MPS and MIG exclude each other, the device plugin shares only whole GPUs by MPS; "
        "use kind: mps without layout, or kind: mig",
    ),
    (
        "pools/1/sharing/mps",
        {"replicas": 2},
        "pools[1].sharing.mps: MPS and MIG exclude each other, and a MIG slice belongs to one pod; "
        "leave it out, or use kind: mps without layout",
    ),
    (
        "pools/1/sharing/replicas",
        4,
        "pools[1].sharing.replicas: MPS and MIG exclude each other, and a MIG slice belongs to one pod; "
        "leave it out, or use kind: mps without layout",
    ),
    ("pools/2/sharing", TIME_SLICING, "pools[2].sharing: machine m6i.xlarge has no GPU to share; leave sharing out"),
    ("pools/1/name", "t4", "pools[1].name: 't4' is also the name of pools[0]; give each pool a name of its own"),
    (
        "pools/0/name",
        "T4_shared",
        "pools[0].name: 'T4_shared' is not a name that Kubernetes takes; "
        "use at most 50 of a-z, 0-9 and -, beginning and ending with a letter or a digit",
    ),
    ("pools/0/name", 4, "pools[0].name: holds the number 4; give text (in quotes if it looks like a number)"),
    ("pools/0/machine", ..., "pools[0].machine: neither machine nor gpu is given; say what the nodes are by one of the two"),
    (
        "pools/0/gpu",
        {"models": ["T4"], "count": 1},
        "pools[0].machine: both machine and gpu are given; say what the nodes are by one of the two",
    ),
    (
        "pools/0/machine",
        "g5g.xlarge",
        "pools[0].machine: g5g.xlarge has arm64 with a T4G, which the catalogue does not have; name another machine",
    ),
    ("pools/0/nodes", 0, "pools[0].nodes: 0 is too small; use 1 or more"),
    ("pools/0/nodes", ..., "pools[0].nodes: missing; say how many nodes to simulate"),
    (
        "pools/0/selector",
        {"a": "b"},
        "pools[0].selector: an embedded cluster makes the pool's nodes; give nodes: N, or use cluster kind existing",
    ),
    ("pools", [], "pools: is empty; give at least one"),
    ("pools", {"t4": {}}, "pools: holds a mapping; give a list"),
    ("pools", ["t4"], "pools[0]: holds the text 't4'; give a mapping, key: value"),
    (
        "pools/0/labels",
        {"nvidia.com/gpu": "true"},
        "pools[0].labels.nvidia.com/gpu: label 'nvidia.com/gpu' is set from the pool or by the cluster; use a prefix of your own",
    ),
    ("pools/0/labels", {"team/": "a"}, "pools[0].labels.team/: 'team/' is not a label key; write it as name or prefix.example/name"),
    (
        "pools/0/labels",
        {"team": "a b"},
        "pools[0].labels.team: 'a b' is not a label value; use at most 63 letters, digits, '-', '_' and '.', "
        "beginning and ending with a letter or a digit",
    ),
    (
        "pools/0/taints",
        [{"key": "team", "effect": "Never"}],
        "pools[0].taints[0].effect: 'Never' is not known; use NoSchedule, PreferNoSchedule or NoExecute",
    ),
    ("cluster", ..., "cluster: missing; add it"),
    ("cluster/kind", "aws", "cluster.kind: unknown kind 'aws'; known: embedded, existing"),
    ("cluster/kubeconfig", "/k", "cluster.kubeconfig: unknown key; known: kind"),
    ("cluster", {"kind": "existing"}, "cluster.kubeconfig: missing; add it"),
    (
        "cluster",
        {"kind": "existing", "kubeconfig": "/k"},
        "pools[0].nodes: the nodes of an existing cluster are there already; give selector: {label: value}",
    ),
    (
        "gpu_operator",
        {"mig_strategy": "none"},
        "pools[1].sharing.kind: gpu_operator.mig_strategy none offers no slices; use mig_strategy: mixed or single",
    ),
    (
        "gpu_operator",
        {"mig_strategy": "single"},
        "pools[1].sharing.layout: gpu_operator.mig_strategy single takes one profile per node; "
        "use mig_strategy: mixed, or one profile",
    ),
    (
        "gpu_operator",
        {"driver": "host"},
        "gpu_operator.driver: simulated nodes come without a driver; use operator, or cluster kind existing",
    ),
    (
        "gpu_operator",
        {"toolkit": "host"},
        "gpu_operator.toolkit: simulated nodes come without a toolkit; use operator, or cluster kind existing",
    ),
    (
        "workloads/0/pool",
        "t44",
        "workloads[0].pool: unknown pool 't44'; did you mean t4? known: t4, mig, cpu",
    ),
    (
        "workloads/0/slice",
        "3g.20gb",
        "workloads[0].slice: pool t4 offers no slice '3g.20gb'; leave it out",
    ),
    (
        "workloads/0/pool",
        "mig",
        "workloads[0].slice: pool mig offers several kinds of slice; known: 3g.20gb, 2g.10gb",
    ),
    (
        "workloads/0",
        {"name": "work", "kind": "pod", "pool": "mig", "slice": "3g.40gb", "image": IMAGE},
        "workloads[0].slice: pool mig offers no slice '3g.40gb'; did you mean 3g.20gb? known: 3g.20gb, 2g.10gb",
    ),
    (
        "workloads/0",
        {"name": "work", "kind": "pod", "pool": "mig", "slice": "2g.10gb", "count": 3, "image": IMAGE},
        "workloads[0].count: a node of pool mig offers 2 nvidia.com/mig-2g.10gb; ask for 2 at most, or use more pods",
    ),
    (
        "workloads/0/count",
        2,
        "workloads[0].count: pool t4 refuses pods that ask for more than one share (UnexpectedAdmissionError); "
        "ask for 1, or set fail_requests_greater_than_one: false",
    ),
    (
        "workloads/0/gpu_product",
        "Tesla-T4",
        "workloads[0].gpu_product: pool is given too; pin by one of the two",
    ),
    (
        "workloads/0",
        {"name": "work", "kind": "pod", "gpu_product": "Tesla-T5", "image": IMAGE},
        "workloads[0].gpu_product: no pool has product 'Tesla-T5'; did you mean Tesla-T4? "
        "known: NVIDIA-A100-PCIE-40GB, Tesla-T4",
    ),
    (
        "workloads/0",
        {"name": "work", "kind": "pod", "count": 1, "image": IMAGE},
        "workloads[0].count: the workload asks for no GPU; name a pool or a gpu_product",
    ),
    (
        "workloads/0",
        {"name": "work", "kind": "pod", "pool": "cpu", "count": 1, "image": IMAGE},
        "workloads[0].count: pool cpu has no GPU; leave it out, or name another pool",
    ),
    ("workloads/0/kind", "statefulset", "workloads[0].kind: unknown kind 'statefulset'; known: pod, deployment, job"),
    ("workloads/0/replicas", 2, None),
    (
        "workloads/0/image",
        "tensorflow/tensorflow",
        "workloads[0].image: image 'tensorflow/tensorflow' is not pinned; name a version tag or a digest",
    ),
    (
        "workloads/0/image",
        "tensorflow/tensorflow:latest-gpu",
        "workloads[0].image: image 'tensorflow/tensorflow:latest-gpu' is not pinned; name a version tag or a digest",
    ),
    ("workloads/0/cpu", "many", "workloads[0].cpu: 'many' is no amount of CPU; write cores, for example 2, 0.5 or 500m"),
    ("workloads/0/cpu", 29, "workloads[0].cpu: the largest node it may run on has 28 cores; ask for less per pod"),
    ("workloads/0/memory", "8GB", "workloads[0].memory: '8GB' is no amount of memory; write it with Ki, Mi, Gi or Ti, for example 8Gi"),
    ("workloads/0/memory", "169Gi", "workloads[0].memory: the largest node it may run on has 168Gi; ask for less per pod"),
    ("workloads/0/namespace", "gpu-operator", "workloads[0].namespace: gpu-operator belongs to the cluster; name another one"),
    ("workloads/0/command", "sleep inf", "workloads[0].command: holds the text 'sleep inf'; give a list"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value", "said"), EXACT)
def test_message(path: str, value: Any, said: str | None) -> None:
    if said is None:
        assert message(change(path, value)).startswith(f"{path.replace('/0/', '[0].')}: unknown key; known: ")
    else:
        assert message(change(path, value)) == said


def test_an_unknown_machine_lists_the_known_ones() -> None:
    said = message(change("pools/0/machine", "g2.5xlrge"))
    assert said.startswith(
        "pools[0].machine: unknown machine 'g2.5xlrge'; did you mean g2.5xlarge? known: g1.xlarge, "
    )
    assert "p5en.48xlarge" in said


def test_an_unknown_gpu_lists_the_known_ones() -> None:
    mapping = change("pools/0", {"name": "t4", "nodes": 1, "gpu": {"models": ["T4", "A100-40G"], "count": 1}})
    said = message(mapping)
    assert said.startswith("pools[0].gpu.models[1]: unknown GPU 'A100-40G'; did you mean A100-40GB? known: ")
    assert "RTX PRO 6000" in said
    assert "H200" in said


def test_two_workloads_with_one_name() -> None:
    mapping = good()
    mapping["workloads"].append(dict(mapping["workloads"][0]))
    assert message(mapping) == (
        "workloads[1].name: 'work' is also workloads[0] of namespace 'default'; give each workload a name of its own"
    )
    mapping["workloads"][1]["namespace"] = "other"
    assert len(parse(mapping).workloads) == 2


def test_no_machine_for_these_gpus() -> None:
    mapping = change("pools/0", {"name": "t4", "nodes": 1, "gpu": {"models": ["A30", "L4"], "count": 3}})
    assert message(mapping) == (
        "pools[0].gpu: no known machine has 3 of A30 or L4; name a machine, or another count"
    )


def test_a_layout_must_fit_every_model_of_the_pool() -> None:
    pool = {
        "name": "t4",
        "nodes": 1,
        "gpu": {"models": ["A100-40GB", "A100-80GB"], "count": 1},
        "sharing": {"kind": "mig", "layout": {"1g.5gb": 7}},
    }
    assert message(change("pools/0", pool)).startswith(
        "pools[0].sharing.layout.1g.5gb: A100-SXM4-80GB has no such profile; "
    )


def test_an_existing_cluster_needs_selectors() -> None:
    mapping = good()
    mapping["cluster"] = {"kind": "existing", "kubeconfig": "/k"}
    for pool in mapping["pools"]:
        del pool["nodes"]
    assert (
        message(mapping) == "pools[0].selector: missing; give the labels by which the pool's nodes are found"
    )
    mapping["pools"][0]["selector"] = {}
    assert message(mapping) == "pools[0].selector: is empty; give at least one"


@pytest.mark.parametrize(("value", "what"), [(None, "nothing"), ([], "a list"), ("x", "the text 'x'")])
def test_an_environment_that_is_no_mapping(value: Any, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(value, "Pulumi.x.yaml")
    assert str(caught.value) == (
        f"Pulumi.x.yaml: gpuform:environment holds {what}; it must hold keys: name, cluster, pools, ..."
    )


def test_the_parts_of_an_error_are_kept_apart() -> None:
    with pytest.raises(InputError) as caught:
        parse(change("pools/0/sharing/replicas", 1))
    error = caught.value
    assert (error.path, error.fact, error.remedy) == (
        "pools[0].sharing.replicas",
        "1 shares nothing",
        "use 2 or more, or kind: exclusive",
    )
