"""Scripts in user data, run by a real shell with stand-ins for the programs they call."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from infra.plan import user_data
from lab.toolchain import Toolchain

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


SHIPPED = "[nvidia-container-cli]\nload-kmods = true\n\n[nvidia-container-runtime]\nmode = 'auto'\n"
VARIABLE = "accept-nvidia-visible-devices-envvar-when-unprivileged"
CONFIG = "/etc/nvidia-container-runtime/config.toml"


def boot(folder: Path, *tools: Path) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run the script on the configuration in ``folder``; also return the calls of systemctl."""
    script = user_data.ISOLATION_SCRIPT.replace(CONFIG, str(folder / "config.toml"))
    assert script != user_data.ISOLATION_SCRIPT
    script = script.replace("/dev/console", str(folder / "console"))
    log = folder / "systemctl.log"
    (folder / "systemctl").write_text(f'#!/bin/bash\necho "$@" >> {log}\n')
    (folder / "systemctl").chmod(0o755)
    path = ":".join(map(str, (folder, *tools, "/usr/bin", "/bin")))
    done = subprocess.run(
        ["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, timeout=30
    )
    return done, log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize("before", [SHIPPED, None, f"{VARIABLE} = true\n"], ids=["shipped", "none", "open"])
def test_nvidias_tool_changes_the_setting_and_keeps_the_rest(
    before: str | None, tmp_path: Path, toolchain: Toolchain
) -> None:
    if before is not None:
        (tmp_path / "config.toml").write_text(before)
    done, calls = boot(tmp_path, toolchain.path("nvidia-ctk").parent)
    assert (done.returncode, calls) == (0, []), done.stderr
    found = tomllib.loads((tmp_path / "config.toml").read_text())
    assert found[VARIABLE] is False
    assert found["accept-nvidia-visible-devices-as-volume-mounts"] is True
    if before == SHIPPED:
        assert found["nvidia-container-cli"]["load-kmods"] is True
        assert found["nvidia-container-runtime"]["mode"] == "auto"


def test_a_node_that_cannot_be_configured_does_not_join(tmp_path: Path) -> None:
    """A mask would not hold: amazon-eks-ami installs the unit in /etc/systemd/system."""
    done, calls = boot(tmp_path)
    assert done.returncode == 1
    assert calls == ["disable --now nodeadm-run.service"]
    assert "this node does not join" in (tmp_path / "console").read_text()
