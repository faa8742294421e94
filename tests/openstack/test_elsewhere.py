"""``up`` killed on one machine, its state in a shared folder, and gone on with from another checkout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpuform.cli.main import app
from tests.openstack.killing import asked, killed
from tests.openstack.stacks import ENVIRONMENT, STACK, Half, half
from tests.openstack.world import World

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that belongs to no checkout, and the passphrase of those who share it."""
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "the team's own")
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    monkeypatch.delenv("GPUFORM_STATE", raising=False)
    folder = tmp_path / "shared"
    folder.mkdir()
    return folder


def test_each_checkout_goes_on_with_what_the_other_has_begun(
    world: World, tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.template()
    world.tell(on="create", slow=3)
    here, there = (_checkout(world, tmp_path / name, shared) for name in ("here", "there"))

    def run(on: Half, *words: str) -> Result:
        monkeypatch.chdir(on.paths.root)
        return CliRunner().invoke(app, list(words))

    assert killed(here, lambda: bool(world.clusters()))
    [cluster] = world.clusters()
    pid = _on_another_host(shared)
    refused = run(there, "recover", STACK, "--yes")
    assert refused.exit_code == 1
    assert f"'gpuform recover {STACK} --owner-is-gone ci-7:{pid}'" in refused.stderr
    done = run(there, "recover", STACK, "--yes", "--owner-is-gone", f"ci-7:{pid}")
    assert done.exit_code == 0, done.output
    assert f"removed the lock on stack {STACK} of process {pid} of" in done.stdout
    assert f"imported as {cluster.uuid}" in done.stdout

    assert killed(there, lambda: asked(world, "/nodegroups") == 1)
    _lock(shared).unlink()  # as `pulumi cancel` does, or an engine that outlives its plugin
    world.tell()
    went_on = run(here, "up", STACK)
    assert went_on.exit_code == 0, went_on.output
    assert f"stack {STACK}: goes on where an interrupted run ended" in went_on.stdout
    assert "groups-gpu-t4 (openstack:containerinfra/nodeGroup:NodeGroup): imported as" in went_on.stdout
    assert (asked(world, "/clusters"), asked(world, "/nodegroups")) == (1, 1)
    assert "client-certificate-data" in here.engine.outputs(STACK, show_secrets=True)["kubeconfig"]
    assert not there.run("up").changed


def _checkout(world: World, folder: Path, shared: Path) -> Half:
    folder.mkdir()
    return half(world, folder, {**ENVIRONMENT, "state": {"backend": f"file://{shared}"}})


def _lock(shared: Path) -> Path:
    [file] = (shared / ".pulumi/locks").rglob("*.json")
    return file


def _on_another_host(shared: Path) -> int:
    """Let the lock that a killed run has left be one of another machine's; the process that it names."""
    content = json.loads(_lock(shared).read_text())
    _lock(shared).write_text(json.dumps({**content, "hostname": "ci-7"}))
    return int(content["pid"])
