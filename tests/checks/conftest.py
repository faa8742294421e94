from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.toolchain import Toolchain
from tests.checks.judges import JsonLines


@pytest.fixture(scope="module")
def types(toolchain: Toolchain) -> Iterator[JsonLines]:
    """NVIDIA's parsers of the device plugin's and of mig-parted's configuration."""
    with JsonLines(toolchain.path("nvidia-config")) as answers:
        yield answers


@pytest.fixture(scope="module")
def mig_parted(toolchain: Toolchain) -> Path:
    return toolchain.path("nvidia-mig-parted")
