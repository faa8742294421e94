"""The script in AL2023's user data that hides GPUs from containers without a request, run by a real shell."""

from __future__ import annotations

import subprocess
import tomllib
from pathlib import Path

import pytest

from infra.plan import user_data
from lab.toolchain import Toolchain

pytestmark = pytest.mark.tools

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
