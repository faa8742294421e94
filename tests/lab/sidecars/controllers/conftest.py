from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.toolchain import Toolchain
from tests.lab.plane.conftest import OwnControlPlane, removed
from tests.lab.sidecars.controllers.kueue_site import Queues


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Queues]:
    """A cluster with one CPU node in which Kueue is declared, but not installed yet."""
    with removed(OwnControlPlane(tmp_path_factory.mktemp("queues"), toolchain)) as cluster:
        cluster.plane.start_with_controllers("kueue")
        site = Queues(cluster)
        site.node("cpu-0")
        yield site
