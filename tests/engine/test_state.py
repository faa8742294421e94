"""A state that the stack file declares: a file backend in another folder, and the user's own passphrase."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.engine import Engine, engine_env, export_lines, forget_stacks
from gpuform.engine.backend import engine_address
from gpuform.engine.environment import PASSPHRASE
from gpuform.engine.files import EngineFiles
from gpuform.engine.locks import locked_failure
from lab.toolchain import Toolchain
from tests.engine.conftest import THREE_RESOURCES, Project, lock

STACK = "there"
SECRET = "import pulumi; pulumi.export('hush', pulumi.Output.secret('not for the state file'))\n"


def declare(project: Project, backend: Path, more: str = "") -> Path:
    file = project.paths.root / f"Pulumi.{STACK}.yaml"
    file.write_text(
        "config:\n  gpuform:environment:\n    name: e\n"
        "    cluster: {kind: existing, kubeconfig: /nowhere}\n"
        "    pools: [{name: t4, machine: g2.5xlarge, selector: {a: b}}]\n"
        f"    state: {{backend: 'file://{backend}'{more}}}\n"
    )
    return file


@pytest.fixture
def elsewhere(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that plays the bucket; the stack file that declares it, and the user's passphrase."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    declare(project, folder)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "the user's own")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    return folder


def checkpoint(folder: Path) -> Path:
    return folder / ".pulumi" / "stacks" / "tried" / f"{STACK}.json"


@pytest.mark.engine
def test_the_state_is_made_and_kept_where_it_is_declared(
    project: Project, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project.paths.root / f"Pulumi.{STACK}.yaml"
    before = file.read_text()
    project.program(THREE_RESOURCES + SECRET)
    assert project.engine.up(STACK).changes == {"create": 3}
    latest = json.loads(checkpoint(elsewhere).read_text())["checkpoint"]["latest"]
    assert len(latest["resources"]) == 6
    assert latest["secrets_providers"]["type"] == "passphrase"
    assert "not for the state file" not in json.dumps(latest)
    assert not list((project.paths.state / "engine").rglob(f"stacks/tried/{STACK}.json")), "none beside us"
    assert not list(elsewhere.rglob("*.attrs")), "an empty one would keep the engine from the state"
    assert file.read_text() == before
    assert project.engine.outputs(STACK, show_secrets=True) == {"hush": "not for the state file"}
    assert project.engine.up(STACK).changes == {"same": 3}, "found again, not made again"
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "another")
    with pytest.raises(Failure, match="incorrect passphrase"):
        project.engine.up(STACK)


@pytest.mark.nightly
@pytest.mark.engine
def test_another_checkout_goes_on_from_it(project: Project, elsewhere: Path, tmp_path: Path) -> None:
    project.engine.up(STACK)
    other = Project(
        type(project.paths)(project.paths.root, tmp_path / "other state", project.paths.cache),
        project.toolchain,
    )
    assert not other.engine.preview(STACK).changed
    assert other.engine.destroy(STACK).changes == {"delete": 3}
    assert not json.loads(checkpoint(elsewhere).read_text())["checkpoint"]["latest"].get("resources")


@pytest.mark.nightly
@pytest.mark.engine
def test_stacks_with_and_without_go_their_own_ways_in_one_engine(project: Project, elsewhere: Path) -> None:
    Engine(project.paths, project.toolchain, say=project.said.append, offline=True).up(STACK)
    assert list(elsewhere.iterdir()) == [], "offline runs have a state of their own"
    engine = project.engine
    engine.up("local")
    engine.up(STACK)
    assert checkpoint(elsewhere).exists()
    kept = list((project.paths.state / "engine" / "backend").rglob("stacks/tried/*.json"))
    assert [file.name for file in kept] == ["local.json"]
    assert not list((project.paths.state / "engine" / "backend").rglob("*.attrs"))


@pytest.mark.nightly
@pytest.mark.engine
def test_by_hand_after_the_lines_of_another_stack(project: Project, elsewhere: Path) -> None:
    """The passphrase set by the local stack's lines is not taken for the user's."""
    project.engine.up(STACK)
    local = export_lines(engine_env(project.paths, project.toolchain))
    there = export_lines(engine_env(project.paths, project.toolchain, STACK))
    assert "PULUMI_CONFIG_PASSPHRASE" not in there

    def shell(script: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = ["bash", "-euc", script]
        return subprocess.run(
            command, cwd=project.paths.root, env={**os.environ, **env}, capture_output=True, text=True
        )

    mine = f"eval {shlex.quote(there)}\npulumi preview --color never"
    assert "5 unchanged" in shell(mine, AWS_PROFILE="mine").stdout
    assert shell(f"eval {shlex.quote(there)}\necho $AWS_PROFILE", AWS_PROFILE="mine").stdout == "mine\n"
    left = os.environ["PULUMI_CONFIG_PASSPHRASE"]
    os.environ["PULUMI_CONFIG_PASSPHRASE"] = PASSPHRASE  # as `eval "$(gpuform local env)"` leaves it
    try:
        again = export_lines(engine_env(project.paths, project.toolchain, STACK))
    finally:
        os.environ["PULUMI_CONFIG_PASSPHRASE"] = left
    shown = shell(
        f"eval {shlex.quote(local)}\neval {shlex.quote(again)}\necho ${{PULUMI_CONFIG_PASSPHRASE-none}}"
    )
    assert shown.stdout == "none\n"


@pytest.mark.nightly
@pytest.mark.engine
def test_without_a_passphrase_nothing_is_begun(
    project: Project, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    with pytest.raises(InputError) as caught:
        project.engine.up(STACK)
    assert str(caught.value) == (
        f"PULUMI_CONFIG_PASSPHRASE: is not set, and stack {STACK} keeps its state at "
        f"file://{elsewhere} without a secrets_provider; set it or PULUMI_CONFIG_PASSPHRASE_FILE, "
        "or declare state.secrets_provider"
    )
    assert list(elsewhere.iterdir()) == []


@pytest.mark.nightly
@pytest.mark.engine
def test_a_state_that_is_declared_wrong_is_bad_input(project: Project, elsewhere: Path) -> None:
    declare(project, elsewhere, more=", secrets_provider: 'kms://x'")
    with pytest.raises(InputError, match=r"state\.secrets_provider: unknown scheme 'kms'"):
        project.engine.preview(STACK)


@pytest.mark.engine
def test_a_lock_is_never_taken_and_its_owner_is_named(project: Project, elsewhere: Path) -> None:
    project.engine.up(STACK)
    folder = elsewhere / ".pulumi" / "locks" / "organization" / "tried" / STACK
    file = lock(folder, 12, "ci-7")
    with pytest.raises(Failure) as caught:
        project.engine.up(STACK)
    assert str(caught.value) == (
        "stack there: is locked by process 12 of ada on host ci-7 since 2026-01-02 03:04:05 UTC; wait "
        "for it, or, if you know that it is gone, run 'gpuform recover there --owner-is-gone ci-7:12'"
    )
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    lock(folder, gone.pid, socket.gethostname())
    with pytest.raises(Failure, match="that process has exited: run 'gpuform recover there'"):
        project.engine.destroy(STACK)
    assert file.exists()
    assert not project.engine.preview(STACK).changed, "a preview takes no lock and needs none"


@pytest.mark.unit
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("file:///srv/my%20state", "file:///srv/my%20state?metadata=skip"),
        ("file://~/state", "file://~/state?metadata=skip"),
        ("file:///srv/state?no_tmp_dir=true", "file:///srv/state?no_tmp_dir=true&metadata=skip"),
        ("file:///srv/state?metadata=", "file:///srv/state?metadata="),
        ("s3://bucket/prefix?region=eu-central-1", "s3://bucket/prefix?region=eu-central-1"),
    ],
)
def test_only_folders_are_told_to_keep_no_notes(url: str, told: str) -> None:
    assert engine_address(url) == told


@pytest.mark.unit
def test_every_owner_is_named_and_another_answer_is_no_lock() -> None:
    folder = "s3://b/.pulumi/locks/organization/gpuform/prod"
    said = (
        "error: the stack is currently locked by 2 lock(s). Either wait for the other process(es) to end or "
        "delete the lock file with `pulumi cancel`.\n"
        f"  {folder}/1.json: created by ada@ci-7 (pid 12) at 2026-01-02T03:04:05Z\n"
        f"  {folder}/2.json: created by bob@ci-8 (pid 13) at 2026-01-02T04:04:05+01:00\n"
    )
    found = locked_failure(said, "prod")
    assert found is not None
    assert found.fact == (
        "is locked by process 12 of ada on host ci-7 since 2026-01-02 03:04:05 UTC, "
        "and by process 13 of bob on host ci-8 since 2026-01-02 03:04:05 UTC"
    )
    assert locked_failure("error: no stack named 'prod' found", "prod") is None


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


@pytest.mark.unit
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


@pytest.mark.unit
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


@pytest.mark.unit
def test_what_lies_on_the_embedded_cluster_or_was_made_up_or_is_gone_is_forgotten(paths: Paths) -> None:
    write_state(paths, "local", OURS, kubernetes(str(paths.kubeconfig)), POD)
    write_state(paths, "destroyed")
    write_state(paths, "prod", AWS, offline=True)
    forget_stacks(paths)
    assert not EngineFiles(paths).folder.exists()


@pytest.mark.unit
def test_local_stop_ends_nothing_that_holds_the_state_of_a_cloud(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("gpuform.cli.local._control_plane", lambda *_: pytest.fail("ended"))
    write_state(Paths.here(), "prod", AWS)
    result = CliRunner().invoke(app, ["local", "stop", "--delete"])
    assert result.exit_code == 1, result.output
    assert "run 'gpuform destroy prod' first" in result.stderr
