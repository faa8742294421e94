from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuform.checkout import scratch
from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.engine import Event, standins
from gpuform.engine.checkpoint import repair
from gpuform.engine.files import EngineFiles
from gpuform.engine.locks import release_dead
from gpuform.engine.pending import require_none
from gpuform.engine.stream import follow
from gpuform.stack.recover import locks
from tests.engine.conftest import THREE_RESOURCES, Project, lock
from tests.waiting import PATIENCE, until

HERE = socket.gethostname()
SLOW = (
    THREE_RESOURCES + "\nimport asyncio; pulumi.export('late', pulumi.Output.from_input(asyncio.sleep(60)))\n"
)


def _dead() -> int:
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    process.wait()
    return process.pid


@contextmanager
def living(folder: Path) -> Iterator[int]:
    """The process of another gpuform."""
    script = folder / "gpuform"
    script.write_text("import time; time.sleep(60)")
    process = subprocess.Popen([sys.executable, str(script)])
    try:
        until(lambda: str(script) in Path(f"/proc/{process.pid}/cmdline").read_text(), what="it has begun")
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.unit
def test_a_dead_owners_lock_is_removed_with_one_line(tmp_path: Path) -> None:
    for pid in (_dead(), os.getpid()):  # the second number was given to another program
        file = lock(tmp_path, pid, HERE)
        file.with_name(file.name + ".attrs").write_text("{}")
        message = f"removed the lock on stack local of process {pid}, which is gone"
        assert release_dead(tmp_path, "local") == [message]
        assert list(tmp_path.iterdir()) == []
    file.write_text('{"pid": 12')
    os.utime(file, (time.time() - 60, time.time() - 60))
    message = "removed the lock on stack local of a run that was killed while writing it"
    assert release_dead(tmp_path, "local") == [message]


@pytest.mark.unit
def test_a_dead_runs_folder_is_removed_by_the_next_and_a_living_ones_stays(tmp_path: Path) -> None:
    dead, living, odd = (tmp_path / name for name in (f"{_dead()}-a", f"{os.getpid()}-b", "odd"))
    for left in (dead, living, odd):
        left.mkdir()
        (left / "events").touch()
    with scratch.folder(tmp_path) as mine:
        assert set(tmp_path.iterdir()) == {living, mine}
        assert mine.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == [living]


@pytest.mark.unit
def test_a_lock_of_this_process_stays_and_another_gpuform_is_an_owner(tmp_path: Path) -> None:
    """`gpuform destroy` holds one while it works in the cluster."""
    folder = tmp_path / "locks"
    with locks.hold_lock("local", locks.FolderStore(folder)):
        assert release_dead(folder, "local") == []
        assert len(list(folder.glob("*.json"))) == 1
    with living(tmp_path) as pid:
        lock(folder, pid, HERE)
        with pytest.raises(Failure, match=rf"is being changed by process {pid} of ada"):
            release_dead(folder, "local")
    assert len(release_dead(folder, "local")) == 1


@pytest.mark.tools
def test_kubectl_can_look_at_a_cluster_that_is_being_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\n")
    (tmp_path / "Pulumi.local.yaml").write_text("config: {}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUFORM_STATE", raising=False)
    paths = Paths.here()
    with living(tmp_path) as pid:
        lock(EngineFiles(paths).locks("gpuform", "local"), pid, HERE)
        absent = CliRunner().invoke(app, ["local", "env"])
        paths.kubeconfig.touch()
        found = CliRunner().invoke(app, ["local", "env"])
    held = f"stack local: is being changed by process {pid} of ada on host {HERE} since 2026-01-02 03:04:05"
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert absent.stderr.startswith(f"failed: {held} UTC (python); wait for it to end")
    assert found.stderr == f"{held} UTC (python); until it ends, only read\n"
    assert f"export KUBECONFIG={paths.kubeconfig}\n" in found.stdout


@pytest.mark.unit
def test_an_owner_on_another_host_is_left_alone(tmp_path: Path) -> None:
    file = lock(tmp_path, 1, "elsewhere")
    message = (
        "process 1 of ada on host elsewhere since 2026.*gpuform recover local --owner-is-gone elsewhere:1"
    )
    with pytest.raises(Failure, match=message):
        release_dead(tmp_path, "local")
    assert file.exists()


@pytest.mark.unit
def test_pending_creates_of_resuming_providers_are_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "local.json"
    rows = (
        ("gpuform:nodes:PoolNodes", "creating"),
        ("kubernetes:core/v1:Pod", "updating"),
        ("kubernetes:helm.sh/v3:Release", "deleting"),
        ("kubernetes:core/v1:Pod", "creating"),
        ("kubernetes:helm.sh/v3:Release", "updating"),
        ("aws:ec2/instance:Instance", "creating"),
        ("openstack:containerinfra/nodeGroup:NodeGroup", "updating"),
    )
    pending = [{"resource": {"urn": kind + was, "type": kind}, "type": was} for kind, was in rows]
    file.write_text(json.dumps({"checkpoint": {"latest": {"pending_operations": pending, "resources": []}}}))
    assert repair(file, "local") == ["3 operation(s) of an interrupted run will be resumed"]
    assert json.loads(file.read_text())["checkpoint"]["latest"]["pending_operations"] == pending[3:]
    assert repair(file, "local") == []


@pytest.mark.unit
def test_what_was_being_made_at_magnum_is_never_made_again(tmp_path: Path) -> None:
    """The provider would create a second cluster of the same name, and Magnum would accept it."""
    resource = {"urn": "u", "type": "openstack:containerinfra/cluster:Cluster"}
    making = {"resource": resource, "type": "creating"}
    with pytest.raises(Failure, match="gpuform recover research"):
        require_none({"deployment": {"pending_operations": [making]}}, "research")
    given_up = {**resource, "custom": True, "id": "c", "outputs": {"a": 1}, "initErrors": ["late"]}
    state = {"deployment": {"resources": [given_up]}}
    with pytest.raises(Failure, match="gpuform recover research"):
        require_none(state, "research")
    require_none(state, "research", destroyed=True)


_ENGINE = """
import pathlib, signal, sys, time
asked = []
signal.signal(signal.SIGINT, lambda *_: asked.append(1))
with open(sys.argv[3], "w") as log:
    log.write('{"diagnosticEvent": {"severity": "info", "message": "made"}}\\n')
    log.flush()
    while not asked:
        time.sleep(0.05)
    log.write("{}\\n" * 100_000)  # more than a pipe holds
pathlib.Path(sys.argv[1]).touch()
"""


@pytest.mark.tools
def test_a_reader_of_the_output_that_goes_lets_the_engine_end_what_it_has_begun(tmp_path: Path) -> None:
    """As in `gpuform up | head`: killed with us, the engine would lose resources that a cloud is creating."""
    ended = tmp_path / "ended"

    def gone(event: Event) -> None:
        raise BrokenPipeError

    with (tmp_path / "log").open("wb") as log, pytest.raises(BrokenPipeError):
        follow(
            [sys.executable, "-c", _ENGINE, str(ended)],
            env=dict(os.environ),
            cwd=tmp_path,
            runs=tmp_path / "runs",
            output=log,
            on_event=gone,
        )
    assert ended.exists()


@pytest.mark.unit
def test_a_state_that_was_cut_short_comes_back_from_the_backup(tmp_path: Path) -> None:
    file = tmp_path / "local.json"
    file.write_text('{"checkpoint": {"lat')
    with pytest.raises(Failure, match=r"its state is damaged and has no intact backup .* start again"):
        repair(file, "local")
    sound = {"checkpoint": {"latest": {"resources": [{"urn": "u"}]}}}
    file.with_name("local.json.bak").write_text(json.dumps(sound))
    assert repair(file, "local") == ["the state of stack local was damaged; restored the engine's backup"]
    assert json.loads(file.read_text()) == sound


@pytest.mark.engine
def test_a_run_goes_on_behind_a_note_that_another_was_killed_over(project: Project) -> None:
    project.engine.up()
    file = EngineFiles(project.paths).checkpoint("tried", "local")
    file.with_name(file.name + ".attrs").write_text("")
    assert project.engine.up().changes == {"same": 3}


def _start(project: Project) -> subprocess.Popen[bytes]:
    code = (
        "import sys; from pathlib import Path; from gpuform.engine import Engine;"
        "from gpuform.checkout.paths import Paths;"
        "from lab.toolchain import Toolchain;"
        "Engine(Paths(*map(Path, sys.argv[1:])), Toolchain(Paths.here())).up()"
    )
    paths = project.paths
    folders = [str(paths.root), str(paths.state), str(paths.cache)]
    process = subprocess.Popen([sys.executable, "-c", code, *folders], stdout=subprocess.DEVNULL)
    locks = EngineFiles(paths).locks("tried", "local")
    until(lambda: list(locks.glob("*.json")) and len(_resources(project)) == 6, what="the run is not at work")
    return process


def _resources(project: Project) -> list[object]:
    file = EngineFiles(project.paths).checkpoint("tried", "local")
    latest = json.loads(file.read_text())["checkpoint"].get("latest") if file.exists() else None
    return (latest or {}).get("resources") or []


def _ours(project: Project) -> list[str]:
    answer = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True)
    return [line for line in answer.stdout.splitlines() if str(project.paths.root) in line]


@pytest.mark.engine
def test_a_killed_run_leaves_nothing_running_and_does_not_block_the_next(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.program(SLOW)
    temporary, runs = tmp_path / "temporary", EngineFiles(project.paths).runs
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = _start(project)
    process.kill()
    process.wait()
    assert [left.name.partition("-")[0] for left in runs.iterdir()] == [str(process.pid)]
    assert list(temporary.glob("gpuform*")) == []
    project.program(THREE_RESOURCES)
    result = project.engine.up()
    assert any(line.startswith("removed the lock on stack local of process") for line in project.said)
    assert result.changes == {"same": 3}
    assert list(runs.iterdir()) == []
    until(lambda: _ours(project), [].__eq__)


@pytest.mark.engine
def test_a_run_that_is_asked_to_end_gives_its_lock_back(project: Project) -> None:
    project.program(SLOW)
    process = _start(project)
    process.send_signal(signal.SIGTERM)
    assert process.wait(40 * PATIENCE) != 0
    assert list(EngineFiles(project.paths).locks("tried", "local").glob("*.json")) == []
    said = (project.paths.logs / "pulumi-up-local.log").read_text()
    assert "Traceback" not in said
    assert "error: update canceled" in said


@pytest.mark.tools
@pytest.mark.parametrize("killed", ["the engine", "the launcher"])
def test_a_plugin_ends_with_the_engine(tmp_path: Path, killed: str) -> None:
    """Otherwise the Kubernetes provider runs on for minutes, and installs a release that is in no state."""
    noted = tmp_path / "plugin"
    plugin = tmp_path / "official"
    plugin.write_text('#!/bin/sh\necho $$ > "$1.new"; mv "$1.new" "$1"; exec sleep 60\n')
    plugin.chmod(0o755)
    launcher = tmp_path / "launcher"
    launcher.write_text(standins._follow_script(plugin))
    launcher.chmod(0o755)
    script = f'"{launcher}" "{noted}" & echo $! > "{tmp_path}/launched"; wait'
    engine = subprocess.Popen(["sh", "-c", script])
    number = int(until(lambda: noted.read_text()))
    victim = engine.pid if killed == "the engine" else int((tmp_path / "launched").read_text())
    os.kill(victim, signal.SIGKILL)
    engine.wait()
    until(lambda: _state(number), lambda state: state in ("", "Z"), 5)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
