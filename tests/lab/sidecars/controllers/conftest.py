from __future__ import annotations

from collections.abc import Iterator

import pytest

from lab.toolchain import Toolchain
from tests.lab.plane.conftest import Own
from tests.lab.sidecars.controllers.kueue_site import Queues


@pytest.fixture(scope="module")
def queues(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Iterator[Queues]:
    """A cluster with one CPU node in which Kueue is declared, but not installed yet."""
    cluster = Own(tmp_path_factory.mktemp("queues"), toolchain)
    try:
        cluster.plane.controlled("kueue")
        site = Queues(cluster)
        site.node("cpu-0")
        yield site
    finally:
        cluster.plane.stop(delete=True)
    assert cluster.pids() == {}


@pytest.fixture(scope="module")
def kueue(queues: Queues) -> Queues:
    """With its release of plain values and one flavor."""
    queues.install()
    queues.kueue("ResourceFlavor", "default", {})
    return queues
