"""``make up`` killed at some moment of its first run, and typed again."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests.journey.conftest import Checkout

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]


LINES = ("creating the control plane", "v1:Namespace", "v1:ConfigMap", "v3:Release", "v1:Deployment")


@pytest.mark.parametrize("line", LINES)
def test_up_after_a_kill_goes_on_and_ends_as_if_nothing_had_happened(fresh: Checkout, line: str) -> None:
    """It is killed as soon as it has printed such a line."""
    first = subprocess.Popen(
        fresh.command("local", "up"),
        env=fresh.env,
        cwd=fresh.paths.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert first.stdout is not None
    assert any(line in said for said in first.stdout)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    fresh.gpuform("local", "up")
    assert fresh.offers()["a100-mig"] == [{"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 2}]
    assert all(pod["phase"] in ("Running", "Succeeded") for pod in fresh.status()["pods"])
    again = fresh.gpuform("local", "up")
    assert "61 unchanged" in again.stdout


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
    assert said.splitlines()[-1] == "interrupted; the same command goes on from here"
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
