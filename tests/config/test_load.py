"""Stack files: the place of the environment, bad YAML, and all errors of a file, in its order and in time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.engine.backend import declared_state
from infra import every_error, strict_yaml
from infra.config import load, parse
from infra.model.base.errors import InputError
from infra.plan.render import render
from tests.build.aws_stacks import stack
from tests.build.edits import changed
from tests.build.environments import declared, on
from tests.config.tables import GOOD

pytestmark = pytest.mark.unit


STACK = """\
encryptionsalt: v1:not-ours
config:
  aws:region: eu-west-1
  gpuform:environment:
    name: test
    cluster: {kind: embedded}
    pools:
      - {name: cpu, machine: m6i.xlarge, nodes: 1}
"""


def load_error(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value).replace(str(path), "FILE")


def test_the_rest_of_a_stack_file_is_the_engines(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(STACK, encoding="utf-8")
    assert load(path).name == "test"


YAML = "; correct the YAML there"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nodes: 1}", "nodes: 1", f"FILE:9:1: expected ',' or '}}', but got '<stream end>'{YAML}"),
        ("    cluster:", "\tcluster:", f"FILE:6:1: found character '\\t' that cannot start any token{YAML}"),
        ("    cluster:", "   cluster:", f"FILE:6:4: the indentation matches no line above{YAML}"),
        ("nodes: 1}", "nodes: 1}\n---\na: 1",
         f"FILE:9:1: expected a single document in the stream, but found another document{YAML}"),
        ("    name: test", "    name: test\n    name: other", f"FILE:6:5: key 'name' is given twice{YAML}"),
        ("nodes: 1}", "nodes: 1, sharing: {kind: mig}, sharing: {kind: mps}}",
         f"FILE:8:74: key 'sharing' is given twice{YAML}"),
        ("name: test", "name: *none", f"FILE:5:11: found undefined alias 'none'{YAML}"),
        ("gpuform:environment", "gpuform:enviroment",
         "FILE: holds no gpuform:environment; declare it under config: gpuform:environment:"),
        ("machine: m6i.xlarge", "machine: m6i.xlarg",
         """FILE:8:21: pools[0] "cpu": machine: unknown machine 'm6i.xlarg'; did you mean m6i.xlarge?"""),
    ],
)  # fmt: skip
def test_bad_files(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert load_error(tmp_path / "Pulumi.test.yaml", STACK.replace(old, new, 1)) == message


@pytest.mark.parametrize("stack", ["local", "aws-dev", "aws-prod", "onprem-dev", "openstack-dev"])
def test_a_rendered_environment_is_declared_again_by_itself(stack: str) -> None:
    """Rendered, resolved output is valid input with the same meaning."""
    env = load(Path(__file__).parents[2] / f"Pulumi.{stack}.yaml")
    assert parse(yaml.safe_load(render(env)["environment.yaml"])) == env


@pytest.mark.parametrize("text", ["", "- a\n", "config: 3\n", "config:\n"])
def test_files_without_an_environment(tmp_path: Path, text: str) -> None:
    assert load_error(tmp_path / "Pulumi.x.yaml", text) == (
        "FILE: holds no gpuform:environment; declare it under config: gpuform:environment:"
    )


def test_prices_of_known_machines_may_be_more_than_a_stack_has(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(STACK + "    cost: {prices: {p5.48xlarge: 40.0}}\n", encoding="utf-8")
    cost = load(path).cost
    assert cost is not None
    assert cost.prices == {"p5.48xlarge": 40.0}


def test_an_environment_left_empty_names_the_file(tmp_path: Path) -> None:
    assert load_error(tmp_path / "Pulumi.x.yaml", "config:\n  gpuform:environment:\n") == (
        "FILE: gpuform:environment holds nothing; it must hold keys: name, cluster, pools, ..."
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No such file or directory; name an existing stack file"):
        load(tmp_path / "Pulumi.none.yaml")


def test_a_merge_key_is_what_it_is_in_the_engine() -> None:
    assert strict_yaml.parse("b: &b {t: 1, u: 1}\nc: {<<: *b, u: 2}", "FILE")["c"] == {"t": 1, "u": 2}


_LAUGHS = "a: &a [x, x]\n" + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in
                                    zip("abcdefg", "bcdefgh", strict=True))  # fmt: skip
_MERGES = _LAUGHS.replace("[x, x]", "{x: 1}").replace(" [", " {<<: [").replace("]\n", "]}\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 2026-02-30", "FILE:1:4: '2026-02-30' has no value as timestamp, which it looks like; put it in"),
        ("a: " + "9" * 5000, "has no value as int"),
        ("a: 18446744073709551616", "FILE:1:4: '18446744073709551616' has no value as int"),
        ("a: 0x" + "f" * 6000, "has no value as int"),
        ("a: 1" + ":59" * 300_000, "has no value as int"),
        ("a: !!int x", "FILE:1:4: 'x' has no value as int"),
        ("a: !!bool maybe", "FILE:1:4: 'maybe' has no value as bool"),
        ("a: !!timestamp x", "FILE:1:4: 'x' has no value as timestamp"),
        ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a: !!map x", "FILE:1:4: expected a mapping node, but found scalar"),
        ("[" * 100_000, "FILE:1:101: lists and mappings are nested more than 100 deep"),
        ("{a: " * 100_000, "are nested more than 100 deep"),
        ("- " * 100_000, "are nested more than 100 deep"),
        (_LAUGHS, "FILE:6:12: holds more than 50000 values, aliases included"),
        (_MERGES, "values, aliases included"),
        ("a: &a [*a]", "FILE:1:8: the value of anchor 'a' contains itself"),
        ("a: &a {<<: *a}", "the value of anchor 'a' contains itself"),
        ("a: b\x00", "FILE:1:5: holds a character that YAML does not allow; remove it"),
        ('a: "\\U00110000"', "found invalid Unicode character escape code"),
        ("#" * 2**20 + "\n", "FILE: is longer than 1024 KiB; make it shorter"),
        ("a: b".encode("utf-16"), "FILE: is not UTF-8 text; save it as UTF-8"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_yaml_that_cannot_be_constructed(tmp_path: Path, text: str | bytes, message: str) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        load(path)
    assert message in str(caught.value).replace(str(path), "FILE")
    with path.open("ab") as file:
        file.write(b" # state")
    with pytest.raises(InputError):
        declared_state(tmp_path, "test")


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + STACK.encode())
    assert load(path).name == "test"


def test_what_was_written_is_quoted_in_one_line_of_bearable_length(tmp_path: Path) -> None:
    found = load_error(
        tmp_path / "Pulumi.test.yaml", STACK.replace("name: test", f'? "{"x" * 9999}\\n"\n    : 1')
    )
    assert len(found) < 2000
    assert "\n" not in found


SHARED = {"kind": "time_slicing", "replicas": 4}


def test_five_thousand_nodes_are_rendered_within_seconds() -> None:
    environment = {
        "name": "test",
        "cluster": {"kind": "embedded"},
        "pools": [{"name": "t4", "machine": "g2.5xlarge", "nodes": 5000, "sharing": SHARED}],
    }
    began = time.process_time()
    render(parse(environment))
    assert time.process_time() - began < 5


MANY = {
    "pools": declared("embedded", *[{"machine": "g2.5xlarge"}] * 200, monitoring={}),
    "workloads": {
        **stack("aws-dev"),
        "pools": [
            {"name": f"p{at}", "machine": "g5.2xlarge", "elastic": {"max": {"cpu": 400}}, "sharing": SHARED}
            for at in range(100)
        ],
        "workloads": [
            {"name": f"w{at}", "kind": "inference", "pool": f"p{at % 100}", "image": "a:1"}
            for at in range(1000)
        ],
    },
}


@pytest.mark.parametrize("environment", MANY.values(), ids=MANY)
def test_planning_many_parts_is_not_quadratic(environment: dict[str, Any]) -> None:
    began = time.process_time()
    render(parse(environment))
    assert time.process_time() - began < 8


def test_a_copy_with_other_pools_has_no_fact_of_the_first() -> None:
    env = on("embedded", {"machine": "g2.5xlarge", "sharing": SHARED})
    assert env.plugin_configs
    assert env.model_copy(update={"pools": ()}).plugin_configs == {}


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
    backend = "s3://a-state/x?region=us-east-1"
    environment["state"] = {"backend": backend, "secrets_provider": "awskms://alias/a"}
    environment["cluster"]["network"] = {"vpc": "vpc-1a2b3c4d", "subnets": ["subnet-1a2b3c4d"]}
    assert [error.partition(":")[0] for error in errors_of(environment)] == ["cluster.network.subnets"]


def errors_of(mapping: dict[str, Any]) -> list[str]:
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
    errors = errors_of(yaml.safe_load(FILE)["config"]["gpuform:environment"])
    assert "pools[2].name: missing" in errors
    assert not [error for error in errors if error.startswith("workloads[0]")]


EMBEDDED = GOOD["embedded"]


# What is judged only once the error is corrected: the environment, changes in it, and the errors that stay.
FOLLOWING: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "a workload needs more than the pool has, of which a key is unknown": (
        "embedded", {"pools/0": {"name": "t4", "mashine": "g2.5xlarge", "nodes": 1}},
        ["pools[0].mashine: unknown key"]),
    "the pool lacks a machine, which the unknown key may have been": (
        "embedded", {"pools/0": {"name": "t4", "type": "g2.5xlarge", "nodes": 1}},
        ["pools[0].type: unknown key"]),
    "an unknown pool is one whatever the cluster is": (
        "aws", {"cluster/region": "west", "workloads/0/pool": "odd"},
        ["cluster.region: 'west' is not a region with EKS", "workloads[0].pool: unknown pool 'odd'"]),
    "an unknown pool of a workload that is wrong otherwise": (
        "aws", {"workloads/0/pool": "odd", "workloads/0/memory": 1},
        ["workloads[0].memory: holds the number 1", "workloads[0].pool: unknown pool 'odd'"]),
    "fields that the meant kind has": (
        "aws", {"cluster/kind": "awss"}, ["cluster.kind: unknown kind 'awss'"]),
    "machines with a GPU that is wrong, and pools with these machines": (
        "own", {"gpus/A100-64GB/memory_mib": 1}, ["gpus.A100-64GB.memory_mib: 1 is too small"]),
    "only what names the section that is wrong": (
        "embedded", {"monitoring": "on", "workloads/0/memory": "900Gi"},
        ["monitoring: holds the text 'on'",
         ("workloads[0].memory: the largest node it may run on has 171968Mi for it: 168Gi of g2.5xlarge, "
          "less kubelet and DaemonSets")]),
    "workloads with a priority that is wrong": (
        "queues", {"priorities": {"High": 1}},
        ["priorities.High: 'High' is not a name that Kubernetes accepts"]),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "edits", "expected"), FOLLOWING.values(), ids=FOLLOWING)
def test_errors_that_follow_are_left_out(kind: str, edits: dict[str, Any], expected: list[str]) -> None:
    assert errors_of(changed(GOOD[kind], *({"at": at, "put": put} for at, put in edits.items()))) == expected


@pytest.mark.parametrize("file", sorted(ROOT.glob("Pulumi.*.yaml")), ids=lambda file: file.stem)
def test_a_stand_in_causes_no_error(file: Path) -> None:
    """Whatever pool or workload is wrong, the rest is judged as before."""
    good = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]["gpuform:environment"]
    for section in ("pools", "workloads"):
        for index in range(len(good.get(section, ()))):
            bad = changed(good, {"at": f"{section}/{index}/unheard", "put": 1})
            bad[section][index]["name"] = 1
            assert errors_of(bad) == [
                f"{section}[{index}].unheard: unknown key", f"{section}[{index}].name: holds the number 1"
            ]  # fmt: skip


def test_many_errors_take_bounded_time() -> None:
    work = {"kind": "pod", "pool": "odd", "image": "a:1"}
    mapping = {**EMBEDDED, "workloads": [{"name": f"w{number}", **work} for number in range(1000)]}
    began = time.process_time()
    assert len(errors_of(mapping)) == every_error.MAX_ROUNDS
    assert time.process_time() - began < 30
