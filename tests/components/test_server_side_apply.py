"""Objects are applied by the server: by the client, large CRDs exceed the limit of annotations."""

from __future__ import annotations

import pytest

from tests.components.recording import record
from tests.components.test_bounded import STACKS, declared

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", STACKS)
def test_no_provider_turns_it_off(name: str) -> None:
    """The default of pulumi-kubernetes 4."""
    for provider in record(declared(name)).of("pulumi:providers:kubernetes"):
        assert provider.inputs.get("enableServerSideApply", "true") == "true"
