"""Every kind of cluster answers every verb in `gpuform.clouds`, and no other code branches on the kind."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.clouds import CLOUDS, cloud_of
from gpuform.stack.cluster_access import read_only_kubeconfig
from gpuform.stack.destroy import Teardown
from gpuform.stack.drift import nodes
from gpuform.stack.preflight import Checks, Preflight, run_checks
from gpuform.stack.preflight.check import Finding
from infra.config import parse
from infra.model.clusters import KINDS, Cluster
from infra.model.environment import Environment
from lab.rehearse import nodes as nodes_of_rehearsals
from lab.toolchain import Toolchain
from tests.build.aws_stacks import ROOT, stack
from tests.clouds.findings import expect

pytestmark = pytest.mark.unit

FACTS = {
    "aws": "not checked: botocore is not installed: pip install 'gpuform[aws]'",
    "embedded": "nothing to check: the cluster runs on this machine: ",
    "existing": "not checked: cluster: no network",
    "hosts": "nothing to check: own hosts are checked over ssh, by another command",
    "openstack": "not checked: openstacksdk is not installed: pip install 'gpuform[openstack]'",
}
"""First fact of each kind's preflight on a machine without clients of clouds."""


def declared(kind: str) -> Environment:
    if kind == "embedded":
        return parse(stack("local"))
    return parse(yaml.safe_load((ROOT / f"tests/config/good_{kind}.yaml").read_text()))


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A checkout on a machine without clients of clouds, and without a network."""
    monkeypatch.setattr("gpuform.stack.preflight.check.find_spec", lambda name: None)
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\n")
    return Paths(tmp_path, tmp_path / ".gpuform", tmp_path / "cache")


@pytest.mark.parametrize("kind", FACTS)
def test_preflight_begins_with_what_cannot_be_checked(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    def away(*asked: str) -> None:
        raise Failure("cluster", "no network", "look")

    monkeypatch.setattr("gpuform.clouds.existing.preflight.cluster.list_objects", away)
    env = declared(kind)
    file = {"config": {"gpuform:environment": env.resolved()}}
    (paths.root / "Pulumi.s.yaml").write_text(yaml.safe_dump(file))
    preflight = cloud_of(env).preflight
    first, *others = run_checks(preflight, env, paths, "s")
    expect(first, "SKIP", FACTS[kind])
    assert (first.fix == "gpuform hosts check s") is (kind == "hosts")
    assert preflight.before_update is bool(others) is (kind not in ("embedded", "hosts"))
    assert preflight.before_update is any(one.subject == "charts with CRDs" for one in others)


def test_beside_a_gitops_controller_the_nodes_alone_are_checked(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checks(name: str) -> Checks:
        return lambda env, paths, stack: iter([Finding(name, "PASS", "")])

    stack = {"type": "pulumi:pulumi:Stack", "outputs": {"only": ["nodes"]}}
    state = {"deployment": {"resources": [stack]}}
    monkeypatch.setattr("gpuform.stack.preflight.local_state", lambda *_: state)
    preflight = Preflight(checks("all"), of_nodes=checks("nodes"))
    assert [one.subject for one in run_checks(preflight, declared("existing"), paths, "s")] == ["nodes"]


@pytest.mark.parametrize("kind", FACTS)
def test_drift_is_of_managed_nodes(kind: str) -> None:
    env = declared(kind)
    rules = cloud_of(env).drift
    if kind == "hosts":
        with pytest.raises(InputError) as caught:
            rules.require_managed("s")
        assert str(caught.value).startswith("stack s: is on own hosts, which the engine does not manage; ")
        return
    rules.require_managed("s")
    counted = [pool.name for pool in env.pools if not pool.by_karpenter]
    missing = list(nodes.check_nodes(env, rules, []))
    assert {one.how for one in missing} == {"missing"}
    named = {f"Node {name}-0" if kind == "embedded" else f"pool {name}" for name in counted}
    assert named & {one.resource for one in missing}


@pytest.mark.parametrize("kind", FACTS)
def test_access_before_a_stack_is_created(paths: Paths, kind: str) -> None:
    """The declared kubeconfig, or the embedded cluster, which simulates the clusters of clouds."""
    env = declared(kind)
    rules, expected = cloud_of(env).access, (paths.kubeconfig, None)
    if env.kubeconfig:
        expected = (Path(env.kubeconfig).expanduser(), env.context)
    elsewhere = env.model_copy(update={"state": "s3"})
    for one in (env,) if rules.is_output else (env, elsewhere):
        with read_only_kubeconfig(one, rules, paths, "s", Toolchain(paths)) as found:
            assert found == expected


CLASSES = {one.model_fields["kind"].annotation: one.__name__ for one in get_args(get_args(Cluster)[0])}
TABLES = {"gpuform/provider/guards/loss.py", "lab/rehearse/nodes.py"}
"""Files that take a class from a table by the kind, and do not branch on it."""


def test_every_kind_answers_every_verb() -> None:
    assert CLOUDS.keys() == KINDS.keys() == FACTS.keys() == nodes_of_rehearsals._KINDS.keys()
    assert set(CLOUDS) == {kind for [kind] in map(get_args, CLASSES)}
    assert all(issubclass(cloud.teardown, Teardown) for cloud in CLOUDS.values())


def _branches(file: Path) -> bool:
    text = file.read_text()
    if "cluster.kind" not in text and not any(name in text for name in CLASSES.values()):
        return False
    types = re.compile(rf"\b({'|'.join(CLASSES.values())})\b")
    return any(
        (isinstance(node, ast.Compare | ast.Subscript) and "cluster.kind" in ast.unparse(node))
        or (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "isinstance"
            and types.search(ast.unparse(node.args[1]))
        )
        for node in ast.walk(ast.parse(text))
    )


def test_no_other_code_branches_on_the_kind() -> None:
    clouds = ROOT / "gpuform/clouds"
    files = [file for top in ("gpuform", "lab") for file in (ROOT / top).rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if clouds not in file.parents and _branches(file)}
    assert found == TABLES
