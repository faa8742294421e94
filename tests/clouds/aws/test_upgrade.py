"""Kubernetes at EKS goes one minor version at a time, after the nodes, and not back."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.clouds import cloud_of
from gpuform.clouds.aws.preflight import versions
from gpuform.engine.files import EngineFiles
from gpuform.stack.preview import run
from gpuform.stack.preview.run import Preview, SimulatedBase
from gpuform.stack.preview.snapshot import declared_snapshot
from infra.config import parse
from infra.model.base.guard_names import GUARD
from infra.model.environment import Environment
from infra.plan import losses
from lab.toolchain import Toolchain
from tests.build.aws_stacks import changed, own_checkout, small
from tests.clouds.findings import refused

pytestmark = pytest.mark.unit

POOL = {"name": "infer", "machine": "g6.xlarge", "nodes": 2}


def at(version: str, **more: Any) -> Environment:
    return parse(changed(small(POOL), version=version, support="extended", **more))


def state_of(env: Environment, version: str, nodes: str = "", ami: str = "AL2023_x86_64") -> dict[str, Any]:
    group = {"nodeGroupName": "infer-1", "amiType": ami, "version": nodes or version}
    resources = [
        {"type": "pulumi:pulumi:Stack", "outputs": {"environment": {"cluster": {"version": version}}}},
        {"type": GUARD, "inputs": {"fixed": losses.contents(env)}},
        {"type": "aws:eks/nodeGroup:NodeGroup", "outputs": group},
    ]
    return {"deployment": {"resources": resources}}


UP = "cluster.version: the cluster has 1.34, and its control plane takes one minor version at a time; "
STEPS = f'{UP}write "1.35", run `gpuform up`, and so on up to 1.36'
ROLLBACK = (
    "cluster.version: the cluster has 1.34, and its control plane does not go back to 1.33; "
    'write "1.34" and run `gpuform up --refresh`; by one version, until 7 days after the upgrade, '
    "EKS itself goes back (EKS user guide, rollback-cluster)"
)
NODES = "cluster.version: EKS upgrades node groups first, and infer-1 has 1.33; "
NODES += 'write "1.34" and run `gpuform up` first'


@pytest.mark.parametrize(
    ("declared", "nodes", "expected"),
    [
        ("1.34", "1.34", ""),
        ("1.35", "1.34", ""),
        ("1.36", "1.34", STEPS),
        ("1.33", "1.34", ROLLBACK),
        ("1.34", "1.33", ""),  # the update that brings the nodes up to date
        ("1.35", "1.33", NODES),
    ],
)
def test_refused_version_names_the_next_step(declared: str, nodes: str, expected: str) -> None:
    env = at(declared)
    assert "".join(refused(env, state_of(env, "1.34", nodes))) == expected


def test_custom_image_has_no_known_version() -> None:
    env = at("1.35")
    assert refused(env, state_of(env, "1.34", "1.33", ami="CUSTOM")) == []


def test_a_cluster_that_is_new_or_replaced_may_have_any_version() -> None:
    env = at("1.36")
    moved = at("1.34", network={"cidr": "10.99.0.0/16", "zones": ["us-west-2a", "us-west-2b"]})
    assert refused(env, state_of(moved, "1.34")) == []
    assert refused(env, {"deployment": {}}) == []


def test_eks_is_asked_and_without_an_answer_the_state_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    env, answer = at("1.36"), {"version": "1.35"}
    monkeypatch.setattr(versions, "describe_cluster", lambda *_: answer)
    assert len(refused(env, state_of(env, "1.34"))) == 1
    assert refused(env, state_of(env, "1.34", "1.35"), live=True) == []  # a step was done by hand
    answer["version"] = "1.37"
    assert "does not go back to 1.36" in refused(env, None, live=True)[0]  # the state is kept elsewhere

    def fails(*_: Any) -> None:
        raise Failure("credentials", "none", "log in")

    monkeypatch.setattr(versions, "describe_cluster", fails)
    assert refused(env, state_of(env, "1.34"), live=True) == [STEPS]


class Engine:
    """Of a stack with Kubernetes 1.34; it must not be asked for a preview."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def export(self, stack: str) -> dict[str, Any]:
        return state_of(at("1.34"), "1.34")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A checkout with a stack that has 1.34 and declares 1.36."""
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(own_checkout(tmp_path / "checkout"))
    declared = changed(small(POOL), version="1.36", support="extended")
    Path("Pulumi.s.yaml").write_text(json.dumps({"config": {"gpuform:environment": declared}}))
    paths = Paths.here("s")
    file = EngineFiles(paths).checkpoint("gpuform", "s")
    file.parent.mkdir(parents=True)
    latest = state_of(at("1.34"), "1.34")["deployment"]
    file.write_text(json.dumps({"version": 3, "checkpoint": {"latest": latest}}))
    monkeypatch.setattr(versions, "describe_cluster", lambda *_: {})
    return paths


@pytest.mark.parametrize("words", ["doctor s", "preflight s", "up s", "up s --skip-preflight"])
def test_commands_end_with_2_before_anything_else_is_asked(
    checkout: Paths, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr("gpuform.cli.up.Engine", Engine)
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2, result.output
    assert UP in result.stderr.replace("\n", " ")


def test_preview_reports_the_refused_version(checkout: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "Engine", Engine)
    base = SimulatedBase(checkout, at("1.34"), declared_snapshot(at("1.34")))
    preview = Preview(
        checkout, Toolchain(checkout), "s", [], offline=True, base="main",
        simulate=lambda *_: nullcontext(base),
        refusals=lambda env: cloud_of(env).preflight.refusals,
    )  # fmt: skip
    outcome = preview.run()
    assert outcome.refused
    assert outcome.reasons == (f"cannot be previewed: {STEPS}",)
