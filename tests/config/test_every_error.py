"""All errors of a stack file in one run: places, names, the order of the file, and none that only follows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import every_error
from infra.config import load, parse
from infra.model.base.errors import InputError
from tests.components.aws_stacks import stack
from tests.config.edits import changed
from tests.config.tables import GOOD

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
FILE = """\
config:
  gpuform:environment:
    name: Test
    cluster: {kind: embedded}
    pools:
      - {name: t4, machine: g2.5xlarge, nodes: one, sharing: {kind: time_slicing, replicas: 1}}
      - name: whole
        machin: g4.p4.40g
        nodes: 1
        taints:
          - {key: a/b/c, efect: NoSchedule}
      - machine: m6i.xlarge
        nodes: 1
      - {name: cpu, machine: m6i.xlarge, nodes: 2}
    workloads:
      - {name: one, kind: pod, pool: whol, image: &image "a:1"}
      - {name: two, kind: pod, pool: t4, slice: 1g.5gb, image: *image}
      - {name: three, kind: pod, pool: whole, count: 5, image: *image}
      - {name: four, kind: pod, pool: cpu, count: 2, image: *image}
    monitorin: {}
"""


def test_a_wrong_cluster_is_not_a_wrong_state() -> None:
    environment = stack("aws-dev")
    environment["state"] = {
        "backend": "s3://a-state/x?region=us-east-1",
        "secrets_provider": "awskms://alias/a",
    }
    environment["cluster"]["network"] = {"vpc": "vpc-1a2b3c4d", "subnets": ["subnet-1a2b3c4d"]}
    assert [error.partition(":")[0] for error in found(environment)] == ["cluster.network.subnets"]


def found(mapping: dict[str, Any]) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse(mapping)
    return [f"{error.path}: {error.fact}" for error in caught.value.errors]


def test_all_errors_of_a_file_with_their_places_in_its_order(tmp_path: Path) -> None:
    """The nameless pool could be the unknown one, and a workload on a wrong pool is not judged."""
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(FILE.replace("      - machine: m6i", "      - name: extra\n        machine: m6i"))
    with pytest.raises(InputError) as caught:
        load(path)
    assert (
        str(caught.value).replace(str(path), "FILE")
        == """\
FILE:3:5: name: 'Test' is not a name that Kubernetes accepts; use at most 63 of a-z, 0-9 and -, beginning \
and ending with a letter or a digit
FILE:6:41: pools[0] "t4": nodes: holds the text 'one'; give a whole number
FILE:6:83: pools[0] "t4": sharing.replicas: 1 shares nothing; use 2 or more, or sharing: {kind: exclusive}
FILE:8:9: pools[1] "whole": machin: unknown key; did you mean machine?
FILE:11:14: pools[1] "whole": taints[0].key: 'a/b/c' is not a label key; write it as name or \
prefix.example/name
FILE:11:26: pools[1] "whole": taints[0].efect: unknown key; did you mean effect? known: key, value, effect
FILE:17:32: workloads[0] "one": pool: unknown pool 'whol'; did you mean whole? known: t4, whole, extra, cpu
FILE:20:44: workloads[3] "four": count: pool cpu has no GPU; leave it out, or name another pool
FILE:21:5: monitorin: unknown key; did you mean monitoring?
9 errors"""
    )


def test_a_pool_without_a_name_may_be_the_one_that_a_workload_names() -> None:
    errors = found(yaml.safe_load(FILE)["config"]["gpuform:environment"])
    assert "pools[2].name: missing" in errors
    assert not [error for error in errors if error.startswith("workloads[0]")]


EMBEDDED = GOOD["embedded"]


@pytest.mark.parametrize(
    ("kind", "edits", "expected"),
    [
        pytest.param(
            "embedded",
            [{"at": "pools/0", "put": {"name": "t4", "mashine": "g2.5xlarge", "nodes": 1}}],
            ["pools[0].mashine: unknown key"],
            id="a workload needs more than the pool has, of which a key is unknown",
        ),
        pytest.param(
            "embedded",
            [{"at": "pools/0", "put": {"name": "t4", "type": "g2.5xlarge", "nodes": 1}}],
            ["pools[0].type: unknown key"],
            id="the pool lacks a machine, which the unknown key may have been",
        ),
        pytest.param(
            "aws",
            [{"at": "cluster/region", "put": "west"}, {"at": "workloads/0/pool", "put": "odd"}],
            ["cluster.region: 'west' is not a region with EKS", "workloads[0].pool: unknown pool 'odd'"],
            id="an unknown pool is one whatever the cluster is",
        ),
        pytest.param(
            "aws",
            [{"at": "workloads/0/pool", "put": "odd"}, {"at": "workloads/0/memory", "put": 1}],
            ["workloads[0].memory: holds the number 1", "workloads[0].pool: unknown pool 'odd'"],
            id="an unknown pool of a workload that is wrong otherwise",
        ),
        pytest.param(
            "aws",
            [{"at": "cluster/kind", "put": "awss"}],
            ["cluster.kind: unknown kind 'awss'"],
            id="fields that the meant kind has",
        ),
        pytest.param(
            "own",
            [{"at": "gpus/A100-64GB/memory_mib", "put": 1}],
            ["gpus.A100-64GB.memory_mib: 1 is too small"],
            id="machines with a GPU that is wrong, and pools with these machines",
        ),
        pytest.param(
            "queues",
            [{"at": "priorities", "put": {"High": 1}}],
            ["priorities.High: 'High' is not a name that Kubernetes accepts"],
            id="workloads with a priority that is wrong",
        ),
    ],
)
def test_errors_that_follow_are_left_out(kind: str, edits: list[dict[str, Any]], expected: list[str]) -> None:
    assert found(changed(GOOD[kind], *edits)) == expected


@pytest.mark.parametrize("file", sorted(ROOT.glob("Pulumi.*.yaml")), ids=lambda file: file.stem)
def test_a_stand_in_causes_no_error(file: Path) -> None:
    """Whatever pool or workload is wrong, the rest is judged as before."""
    good = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]["gpuform:environment"]
    for section in ("pools", "workloads"):
        for index in range(len(good.get(section, ()))):
            bad = changed(good, {"at": f"{section}/{index}/odd", "put": 1})
            bad[section][index]["name"] = 1
            assert found(bad) == [
                f"{section}[{index}].odd: unknown key", f"{section}[{index}].name: holds the number 1"
            ]  # fmt: skip


def test_many_errors_take_bounded_time() -> None:
    work = {"kind": "pod", "pool": "odd", "image": "a:1"}
    mapping = {**EMBEDDED, "workloads": [{"name": f"w{number}", **work} for number in range(1000)]}
    began = time.process_time()
    assert len(found(mapping)) == every_error.MAX_ROUNDS
    assert time.process_time() - began < 30
