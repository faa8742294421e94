"""Stack files: the place of the environment, and messages for bad YAML."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml

from gpuform.engine.backend import declared_state
from infra.config import load, parse
from infra.model.base.errors import InputError
from infra.plan.render import render

pytestmark = pytest.mark.unit

GOOD = """\
encryptionsalt: v1:not-ours
config:
  aws:region: eu-west-1
  gpuform:environment:
    name: test
    cluster: {kind: embedded}
    pools:
      - {name: cpu, machine: m6i.xlarge, nodes: 1}
"""


def error_of(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load(path)
    return str(caught.value).replace(str(path), "FILE")


def test_the_rest_of_a_stack_file_is_the_engines(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(GOOD, encoding="utf-8")
    assert load(path).name == "test"


YAML = "; correct the YAML there"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("nodes: 1}", "nodes: 1", f"FILE:9:1: expected ',' or '}}', but got '<stream end>'{YAML}"),
        ("    cluster:", "\tcluster:", f"FILE:6:1: found character '\\t' that cannot start any token{YAML}"),
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
    assert error_of(tmp_path / "Pulumi.test.yaml", GOOD.replace(old, new, 1)) == message


@pytest.mark.parametrize("stack", ["local", "aws-dev", "aws-prod", "onprem-dev", "openstack-dev"])
def test_a_rendered_environment_is_declared_again_by_itself(stack: str) -> None:
    """Rendered, resolved output is valid input with the same meaning."""
    env = load(Path(__file__).parents[2] / f"Pulumi.{stack}.yaml")
    assert parse(yaml.safe_load(render(env)["environment.yaml"])) == env


@pytest.mark.parametrize("text", ["", "- a\n", "config: 3\n", "config:\n"])
def test_files_without_an_environment(tmp_path: Path, text: str) -> None:
    assert error_of(tmp_path / "Pulumi.x.yaml", text) == (
        "FILE: holds no gpuform:environment; declare it under config: gpuform:environment:"
    )


def test_prices_of_known_machines_may_be_more_than_a_stack_has(tmp_path: Path) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(GOOD + "    cost: {prices: {p5.48xlarge: 40.0}}\n", encoding="utf-8")
    cost = load(path).cost
    assert cost is not None
    assert cost.prices == {"p5.48xlarge": 40.0}


def test_an_environment_left_empty_names_the_file(tmp_path: Path) -> None:
    assert error_of(tmp_path / "Pulumi.x.yaml", "config:\n  gpuform:environment:\n") == (
        "FILE: gpuform:environment holds nothing; it must hold keys: name, cluster, pools, ..."
    )


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"No such file or directory; name an existing stack file"):
        load(tmp_path / "Pulumi.none.yaml")


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
        ("[" * 100_000, "FILE:1:51: lists and mappings are nested more than 50 deep"),
        ("{a: " * 100_000, "are nested more than 50 deep"),
        ("- " * 100_000, "are nested more than 50 deep"),
        (_LAUGHS, "FILE:6:12: holds more than 50000 values, aliases included"),
        (_MERGES, "values, aliases included"),
        ("a: &a [*a]", "FILE:1:8: the value of anchor 'a' contains itself"),
        ("a: &a {<<: *a}", "the value of anchor 'a' contains itself"),
        ("a: b\x00", "FILE:1: holds a character that YAML does not allow; remove it"),
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
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load(path).name == "test"


def test_what_was_written_is_quoted_in_one_line_of_bearable_length(tmp_path: Path) -> None:
    found = error_of(
        tmp_path / "Pulumi.test.yaml", GOOD.replace("name: test", f'? "{"x" * 9999}\\n"\n    : 1')
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


def test_planning_many_pools_is_not_quadratic() -> None:
    pools = [{"name": f"t4-{number}", "machine": "g2.5xlarge", "nodes": 1} for number in range(200)]
    environment = {"name": "test", "cluster": {"kind": "embedded"}, "pools": pools, "monitoring": {}}
    began = time.process_time()
    render(parse(environment))
    assert time.process_time() - began < 8
