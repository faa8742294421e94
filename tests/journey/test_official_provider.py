"""The main job with the official Kubernetes provider, built from its module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuform.toolchain import Toolchain
from tests.journey.conftest import close, make_checkout
from tests.journey.test_main_job import changes

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

STANDS_IN = "stand-in for pulumi-resource-kubernetes"


def test_a_state_of_the_stand_in_is_updated_once(
    tmp_path: Path, toolchain: Toolchain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The official provider writes down every default of a release."""
    checkout = make_checkout(tmp_path)
    try:
        assert STANDS_IN in checkout.gpuform("local", "up").stdout
        official = toolchain.path("pulumi-resource-kubernetes")
        monkeypatch.setenv("PATH", f"{official.parent}{os.pathsep}{os.environ['PATH']}")
        moved = checkout.gpuform("local", "up")
        assert STANDS_IN not in moved.stdout
        assert changes(moved)
        assert all(line.startswith("updated kubernetes:helm.sh/v3:Release ") for line in changes(moved))
        assert changes(checkout.gpuform("local", "up")) == []
    finally:
        close(checkout)
