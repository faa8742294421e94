"""What crosses the wire, and the protobuf stubs alone: a plugin starts without importing the SDK."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable

import pytest

from gpuform.provider.properties import UNKNOWN, Secret, from_struct, has_unknown, reveal, to_struct

pytestmark = pytest.mark.unit

PLUGINS = ("lab.offline.language.host", "gpuform.provider.own.provider", "lab.offline.aws.provider")


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


def test_no_plugin_imports_the_sdk_to_start() -> None:
    """Importing the SDK would take longer than the rest of the start, which every run waits for."""
    assert not {name for name in loaded_by(PLUGINS) if name.startswith("pulumi")}


def test_handlers_of_clusters_load_no_model_of_the_environment() -> None:
    """Every run waits for the guards too; the models would double that."""
    handlers = ("guards.loss", "guards.replacement", "nodes.pool_nodes", "nodes.mig_layout")
    handlers += ("queues.removal", "workloads.blue_green")
    assert "pydantic" not in loaded_by(f"gpuform.provider.{handler}" for handler in handlers)


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


def test_an_output_value_is_what_it_holds() -> None:
    signature = "4dabf18193072939515e22adb298388d"
    output = {signature: "d0e6a833031e9bbcd3f4e8bde6ca49a4"}
    values = {"a": output, "b": {**output, "value": "x", "secret": True}, "c": {**output, "value": "x"}}
    assert from_struct(to_struct(values)) == {"a": UNKNOWN, "b": Secret("x"), "c": "x"}
