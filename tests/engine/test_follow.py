from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from gpuform.engine import standins
from tests.waiting import until


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
