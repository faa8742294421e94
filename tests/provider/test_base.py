"""How the engine starts and ends a plugin process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.waiting import PATIENCE

pytestmark = pytest.mark.tools

PLUGINS = ["gpuform.provider.own", "lab.offline.language", "lab.offline.aws"]


def start(module: str) -> subprocess.Popen[str]:
    """A plugin that has printed its port: from then on the engine may end it."""
    command = [sys.executable, "-P", "-m", module, "127.0.0.1:1"]
    plugin = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert plugin.stdout is not None
    assert int(plugin.stdout.readline()) > 0
    return plugin


@pytest.mark.parametrize("module", PLUGINS)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["engine", "system"])
def test_a_plugin_ends_when_it_is_told_to(module: str, signum: signal.Signals) -> None:
    """The engine ends plugins by SIGINT and waits 5 s for each that does not exit."""
    plugin = start(module)
    try:
        plugin.send_signal(signum)
        _, stderr = plugin.communicate(timeout=30 * PATIENCE)
    finally:
        plugin.kill()
    assert (plugin.returncode, stderr) == (0, "")


@pytest.mark.parametrize("module", PLUGINS)
def test_a_plugin_that_is_ending_can_be_told_again(module: str) -> None:
    """The engine shows a plugin's last output as if the program had printed it."""
    plugin = start(module)
    deadline = time.monotonic() + 30 * PATIENCE
    try:
        while plugin.poll() is None and time.monotonic() < deadline:
            plugin.send_signal(signal.SIGINT)
            time.sleep(0.001)
        _, stderr = plugin.communicate(timeout=30 * PATIENCE)
    finally:
        plugin.kill()
    assert stderr == ""
    # Python restores the default signal handler just before it exits.
    assert plugin.returncode in (0, -signal.SIGINT)
