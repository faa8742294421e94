"""The image pre-pull script, run by a real shell with stand-ins for the programs it calls."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from infra.plan import user_data

pytestmark = pytest.mark.tools


def run_script(folder: Path, script: str, ctr: str) -> subprocess.CompletedProcess[str]:
    """Run the script; systemd-run runs its command at once, and ``ctr`` is the body of ctr."""
    for name, body in (
        ("systemd-run", 'while [ "${1#--}" != "$1" ]; do echo "$1" >> "$LOG"; shift; done; exec "$@"'),
        ("ctr", ctr),
    ):
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(folder / "log")}
    return subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, timeout=20)


def test_the_script_pulls_the_images_once_containerd_answers(tmp_path: Path) -> None:
    prepull = ("docker.io/tensorflow/tensorflow:2.12.0-gpu", "quay.io/a/b@sha256:" + "0" * 64)
    done = run_script(
        tmp_path, user_data.prepull_script(prepull), '[ "$1" = version ] || echo "$@" >> "$LOG"'
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if not line.startswith("--property") and "pull " in line] == [
        f"--namespace k8s.io images pull {image}" for image in prepull
    ]
    assert "--no-block" in lines  # the node joins meanwhile
    assert f"--property=TimeoutStartSec={user_data.PREPULL_TIMEOUT_S}" in lines


def test_a_failed_pull_keeps_no_node_from_joining(tmp_path: Path) -> None:
    script = user_data.prepull_script(("docker.io/library/none:1",))
    assert run_script(tmp_path, script, '[ "$1" = version ]').returncode == 0


def test_an_images_name_cannot_be_a_command(tmp_path: Path) -> None:
    script = user_data.prepull_script(("x; touch $(dirname $LOG)/broken #'",))
    run_script(tmp_path, script, '[ "$1" = version ] || echo "$@" >> "$LOG"')
    assert not (tmp_path / "broken").exists()
