"""A control plane with the simulated operator."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.simulator.site import Site, opened


@pytest.fixture(scope="module")
def site(simulated_plane: Any) -> Iterator[Site]:
    """A control plane with one CPU node and the operator; a test makes the configurations."""
    with opened(simulated_plane) as result:
        yield result
