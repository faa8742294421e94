"""The protobuf stubs alone: a plugin starts without importing the SDK."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit

PLUGINS = ("lab.offline.language.host", "gpuform.provider.own.provider", "lab.offline.aws.provider")


def test_they_are_the_sdks_own_classes() -> None:
    """Test programs, and components served as a package, have both in one process."""
    from pulumi.runtime.proto import provider_pb2 as theirs

    from gpuform.provider.protocol import provider_pb2 as ours

    assert ours.CheckRequest is theirs.CheckRequest
    assert ours.__file__ == theirs.__file__


def test_no_plugin_imports_the_sdk_to_start() -> None:
    """Importing the SDK would take longer than the rest of the start, which every run waits for."""
    imports = "; ".join(f"import {plugin}" for plugin in PLUGINS)
    loaded = "sorted({name.partition('.')[0] for name in sys.modules if name.startswith('pulumi')})"
    code = f"import sys; {imports}; print({loaded})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
