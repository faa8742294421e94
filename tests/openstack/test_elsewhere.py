"""``up`` killed on one machine, with its state in a shared folder, and resumed from another checkout."""

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

HOST_DRIVER = {"gpu_operator": {"driver": "host"}}
"""The played cloud's image is Fedora CoreOS, for which NVIDIA publishes no driver images."""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    world.settled(cluster.uuid)
    _lock_of_another_host(shared)
    refused = run(there, "recover", STACK, "--yes")
    assert refused.exit_code == 1
    assert f"'gpuform recover {STACK} --owner-is-gone ci-7:4711'" in refused.stderr
    done = run(there, "recover", STACK, "--yes", "--owner-is-gone", "ci-7:4711")
    assert done.exit_code == 0, done.output
    assert f"removed the lock on stack {STACK} of process 4711 of" in done.stdout
    assert (
        f"imported as {cluster.uuid}" in done.stdout
        or "research-cluster (openstack:containerinfra/cluster:Cluster): refreshed" in done.stdout
    )

    assert killed(there, lambda: asked(world, "/nodegroups") == 1)
    for lock in _locks(shared).glob("*.json"):
        lock.unlink()  # as `pulumi cancel` does, or an engine that outlives its plugin
    world.tell()
    went_on = run(here, "up", STACK)
    assert went_on.exit_code == 0, went_on.output
    assert f"stack {STACK}: resumes an interrupted run" in went_on.stdout
    assert "groups-gpu-t4 (openstack:containerinfra/nodeGroup:NodeGroup): " in went_on.stdout
    assert (asked(world, "/clusters"), asked(world, "/nodegroups")) == (1, 1)
    assert "client-certificate-data" in here.engine.outputs(STACK, show_secrets=True)["kubeconfig"]
    assert not there.run("up").changed


def _checkout(world: World, folder: Path, shared: Path) -> Half:
    folder.mkdir()
    return half(world, folder, {**ENVIRONMENT, **HOST_DRIVER, "state": {"backend": f"file://{shared}"}})


def _locks(shared: Path) -> Path:
    return shared / ".pulumi/locks/organization/gpuform" / STACK


def _lock_of_another_host(shared: Path) -> None:
    """Replaces the lock that the killed run may have left."""
    folder = _locks(shared)
    folder.mkdir(parents=True, exist_ok=True)
    for lock in folder.glob("*.json"):
        lock.unlink()
    content = {"pid": 4711, "username": "ci", "hostname": "ci-7", "timestamp": "2026-11-22T10:00:00Z"}
    (folder / "0a1b2c3d-0000-4000-8000-000000000000.json").write_text(json.dumps(content))
