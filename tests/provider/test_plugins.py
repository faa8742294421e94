"""How a plugin process starts and ends, and what crosses the wire."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterable

import pytest

from gpuform.provider.properties import UNKNOWN, Secret, from_struct, has_unknown, reveal, to_struct
from tests.waiting import PATIENCE

PLUGINS = ["gpuform.provider.own", "lab.offline.language", "lab.offline.aws"]
MODULES = ("lab.offline.language.host", "gpuform.provider.own.provider", "lab.offline.aws.provider")


@pytest.mark.unit
def test_they_are_the_sdks_own_classes() -> None:
    """Test programs, and components served as a package, have both in one process."""
    from pulumi.runtime.proto import provider_pb2 as theirs

    from gpuform.provider.protocol import provider_pb2 as ours

    assert ours.CheckRequest is theirs.CheckRequest
    assert ours.__file__ == theirs.__file__


def loaded_by(modules: Iterable[str]) -> set[str]:
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.unit
def test_no_plugin_imports_the_sdk_to_start() -> None:
    """Importing the SDK would take longer than the rest of the start, which every run waits for."""
    assert not {name for name in loaded_by(MODULES) if name.startswith("pulumi")}


@pytest.mark.unit
def test_handlers_of_clusters_load_no_model_of_the_environment() -> None:
    """Every run waits for the guards too; the models would double that."""
    handlers = ("guards.loss", "guards.replacement", "nodes.pool_nodes", "nodes.mig_layout")
    handlers += ("removals", "workloads.blue_green")
    assert "pydantic" not in loaded_by(f"gpuform.provider.{handler}" for handler in handlers)


@pytest.mark.unit
def test_property_values_survive_the_wire() -> None:
    values = {
        "text": "x",
        "whole": 3,
        "part": 0.5,
        "yes": True,
        "none": None,
        "list": [1, {"a": []}],
        "map": {},
        "secret": Secret({"p": [Secret("q")]}),
        "unknown": UNKNOWN,
    }
    decoded = from_struct(to_struct(values))
    assert decoded == values
    assert isinstance(decoded["whole"], int)
    assert has_unknown(decoded)
    assert "q" not in repr(decoded["secret"])
    assert reveal(decoded["secret"]) == {"p": ["q"]}


@pytest.mark.unit
def test_an_output_value_is_what_it_holds() -> None:
    signature = "4dabf18193072939515e22adb298388d"
    output = {signature: "d0e6a833031e9bbcd3f4e8bde6ca49a4"}
    values = {"a": output, "b": {**output, "value": "x", "secret": True}, "c": {**output, "value": "x"}}
    assert from_struct(to_struct(values)) == {"a": UNKNOWN, "b": Secret("x"), "c": "x"}


def start(module: str) -> subprocess.Popen[str]:
    """A plugin that has printed its port: from then on the engine may end it."""
    command = [sys.executable, "-P", "-m", module, "127.0.0.1:1"]
    plugin = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert plugin.stdout is not None
    assert int(plugin.stdout.readline()) > 0
    return plugin


@pytest.mark.tools
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


@pytest.mark.tools
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
