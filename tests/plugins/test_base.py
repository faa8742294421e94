"""How a plugin process begins and ends, as the engine does it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("module", ["nodes", "kubernetes", "offline"])
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=["engine", "system"])
def test_a_plugin_ends_at_once_when_it_is_told_to(module: str, ending: signal.Signals) -> None:
    """The engine ends plugins by SIGINT and waits 5 s for each that does not go."""
    command = [sys.executable, "-P", "-m", f"gpuform.plugins.{module}", "127.0.0.1:1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as plugin:
        assert plugin.stdout is not None
        assert int(plugin.stdout.readline()) > 0
        plugin.send_signal(ending)
        try:
            assert plugin.wait(timeout=4) == 0
        finally:
            plugin.kill()
