from __future__ import annotations

from pathlib import Path

import pytest

from lab.toolchain import Toolchain
from tests.plan.rules.promtool import Promtool


@pytest.fixture(scope="session")
def promtool(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Promtool:
    binary: Path = toolchain.path("promtool")
    return Promtool(binary, tmp_path_factory.mktemp("promtool"))
