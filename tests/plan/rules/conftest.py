from __future__ import annotations

import pytest

from lab.toolchain import Toolchain
from tests.plan.rules import world
from tests.plan.rules.promtool import Promtool


@pytest.fixture(scope="session")
def promtool(toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Promtool:
    folder = tmp_path_factory.mktemp("promtool")
    return Promtool(toolchain.path("promtool"), folder, world.environment())
