"""Which state may be forgotten: only that of resources on the embedded cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.engine import Engine, forget_stacks
from gpuform.engine.files import EngineFiles
from lab.toolchain import Toolchain

pytestmark = pytest.mark.unit

AWS = {"type": "pulumi:providers:aws", "inputs": {"region": "us-west-2"}}
OURS = {"type": "pulumi:providers:gpuform", "inputs": {}}
POD = {"type": "kubernetes:core/v1:Pod", "custom": True}


def kubernetes(kubeconfig: object) -> dict[str, Any]:
    return {"type": "pulumi:providers:kubernetes", "inputs": {"kubeconfig": kubeconfig}}


def write_state(paths: Paths, stack: str, *resources: dict[str, Any], offline: bool = False) -> Path:
    file = EngineFiles(paths, offline).checkpoint("tried", stack)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}))
    return file


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path, tmp_path / "state", tmp_path / "cache")


@pytest.mark.parametrize(
    "provider",
    [AWS, {"type": "pulumi:providers:openstack"}, kubernetes("/elsewhere"), kubernetes({"secret": "x"})],
    ids=["aws", "openstack", "existing", "kubeconfig of a cloud"],
)
def test_the_state_of_what_is_elsewhere_is_not_forgotten(paths: Paths, provider: dict[str, Any]) -> None:
    file = write_state(paths, "prod", OURS, provider, POD)
    write_state(paths, "local", kubernetes(str(paths.kubeconfig)), POD)
    with pytest.raises(Failure) as caught:
        forget_stacks(paths)
    assert str(caught.value) == (
        "stack prod: has 3 resources outside the embedded cluster, recorded only in this state; "
        f"run 'gpuform destroy prod' first, or, if they are gone, remove {file}"
    )
    assert file.exists()


@pytest.mark.parametrize(("provider", "forgotten"), [(AWS, 0), (kubernetes("/elsewhere"), 0), (None, 2)])
def test_a_stack_that_becomes_embedded_keeps_the_state_of_its_cloud(
    paths: Paths, provider: dict[str, Any] | None, forgotten: int
) -> None:
    """`up` forgets a state without a control plane; that of real resources is recorded nowhere else."""
    (paths.root / "Pulumi.yaml").write_text("name: tried\nruntime: python\n")
    own = kubernetes(str(replace(paths, stack="prod").kubeconfig))
    file = write_state(paths, "prod", provider or own, POD)
    engine = Engine(replace(paths, stack="prod"), Toolchain(paths))
    assert engine.forget("prod") == forgotten
    assert file.exists() != bool(forgotten)


def test_what_lies_on_the_embedded_cluster_or_was_made_up_or_is_gone_is_forgotten(paths: Paths) -> None:
    write_state(paths, "local", OURS, kubernetes(str(paths.kubeconfig)), POD)
    write_state(paths, "destroyed")
    write_state(paths, "prod", AWS, offline=True)
    forget_stacks(paths)
    assert not EngineFiles(paths).folder.exists()


def test_nothing_is_ended_before_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("gpuform.cli.local._control_plane", lambda *_: pytest.fail("ended"))
    write_state(Paths.here(), "prod", AWS)
    result = CliRunner().invoke(app, ["local", "stop", "--delete"])
    assert result.exit_code == 1, result.output
    assert "run 'gpuform destroy prod' first" in result.stderr
