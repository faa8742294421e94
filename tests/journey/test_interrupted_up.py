"""``make up`` killed at some moment of its first run, and run again."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.toolchain import Toolchain
from tests.journey.conftest import Checkout
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]


LINES = ("creating the control plane", "v1:Namespace", "v1:ConfigMap", "v3:Release", "v1:Deployment")


@pytest.mark.parametrize("line", LINES)
def test_up_after_a_kill_goes_on_and_ends_as_if_nothing_had_happened(fresh: Checkout, line: str) -> None:
    first = begun(fresh)
    assert first.stdout is not None
    assert any(line in said for said in first.stdout)
    kill(first)
    require_whole(fresh)


@pytest.fixture
def outliving(tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A provider on PATH that outlives the engine until a file ``killed`` exists beside it."""
    folder = tmp_path / "outliving"
    folder.mkdir()
    os.link(toolchain.path("pulumi-resource-kubernetes"), folder / "provider")
    script = f'#!/bin/sh\n[ -e {folder}/killed ] && exec {folder}/provider "$@"\n'
    script += f'exec setsid --fork --wait {folder}/provider "$@"\n'
    (folder / "pulumi-resource-kubernetes").write_text(script)
    (folder / "pulumi-resource-kubernetes").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    yield folder
    for process in providers(tmp_path):
        os.kill(process, signal.SIGKILL)


def providers(checkout: Path) -> list[int]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, env = ((process / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue
        program = words.split(b"\0")[0]
        ours = program.endswith((b"pulumi-resource-kubernetes", b"outliving/provider"))
        if ours and os.fsencode(checkout) in env:
            found.append(int(process.name))
    return found


def test_an_installation_goes_on_after_a_kill(fresh: Checkout) -> None:
    """Helm has recorded the installation as pending, but the state does not have the release."""
    fresh.gpuform("local", "start")
    first = begun(fresh)
    until(lambda: pending(fresh, "install"), bool, 60)
    kill(first)
    until(lambda: providers(fresh.paths.root), lambda left: not left, 5)
    assert pending(fresh, "install")
    assert "marked as failed" in require_whole(fresh)


def test_an_installation_that_ends_after_the_kill_is_imported(fresh: Checkout, outliving: Path) -> None:
    fresh.gpuform("local", "start")
    first = begun(fresh)
    until(lambda: pending(fresh, "install"), bool, 60)
    kill(first)
    assert providers(fresh.paths.root)
    (outliving / "killed").touch()
    assert "imported as" in require_whole(fresh)


def test_an_upgrade_goes_on_after_a_kill(fresh: Checkout) -> None:
    def edit(environment: dict[str, Any]) -> None:
        environment["pools"][0]["sharing"]["replicas"] = replicas

    replicas = 8
    fresh.gpuform("local", "up")
    fresh.change(edit)
    second = begun(fresh)
    until(lambda: pending(fresh, "upgrade"), bool, 60)
    kill(second)
    assert pending(fresh, "upgrade")
    replicas = 4  # the program is unchanged, the cluster is not
    fresh.change(edit)
    assert "rolled back" in require_whole(fresh)


def begun(checkout: Checkout) -> subprocess.Popen[str]:
    return subprocess.Popen(
        checkout.command("local", "up"),
        env=checkout.env,
        cwd=checkout.paths.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def pending(checkout: Checkout, what: str) -> str:
    return checkout.kubectl("get", "secrets", "-A", "-l", f"owner=helm,status=pending-{what}", "-o", "name")


def require_whole(checkout: Checkout) -> str:
    """Output of the next up; after it every object exists and works, once."""
    said = checkout.gpuform("local", "up").stdout
    assert checkout.offers()["a100-mig"] == [{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 2}]
    assert all(pod["phase"] in ("Running", "Succeeded") for pod in checkout.status()["pods"])
    assert "61 unchanged" in checkout.gpuform("local", "up").stdout
    assert "nothing is left of an interrupted run" in checkout.gpuform("recover", "local").stdout
    return said


def test_ctrl_c_ends_the_update_in_order_and_says_how_it_goes_on(fresh: Checkout) -> None:
    first = subprocess.Popen(
        fresh.command("local", "up"),
        env=fresh.env,
        cwd=fresh.paths.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    while "gpu-operator" not in first.stdout.readline():
        assert first.poll() is None
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130
    assert said.splitlines()[-1] == "interrupted; run the same command again to continue"
    fresh.gpuform("local", "up")
    assert "61 unchanged" in fresh.gpuform("local", "up").stdout


def test_stop_leaves_no_process_and_up_goes_on_from_the_data(fresh: Checkout) -> None:
    fresh.gpuform("local", "up")
    fresh.gpuform("local", "stop")
    assert fresh.running() == []
    locks = list((fresh.paths.state / "engine").rglob("locks/**/*.json"))
    assert locks == []
    assert "61 unchanged" in fresh.gpuform("local", "up").stdout
    fresh.gpuform("local", "stop", "--delete")
    assert not fresh.paths.kubeconfig.exists()


def test_the_engine_by_hand(fresh: Checkout) -> None:
    fresh.gpuform("local", "start")
    lines = fresh.gpuform("local", "env").stdout

    def shell(command: str) -> str:
        script = f"{lines}\n{command}"
        done = subprocess.run(
            ["bash", "-euc", script], cwd=fresh.paths.root, env=fresh.env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "61 to create" in shell("pulumi preview --color never")
    assert "61 created" in shell("pulumi up --yes --skip-preview --color never")
    assert '"nvidia.com/gpu.shared":4' in shell("pulumi stack output pools --json").replace(" ", "")
    assert "a100-mig-0" in shell("kubectl get nodes")
    assert "61 deleted" in shell("pulumi destroy --yes --skip-preview --color never")
    assert "No resources found" in shell("kubectl get nodes 2>&1")
