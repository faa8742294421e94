from __future__ import annotations

import pytest

from infra.model import aws_values

pytestmark = pytest.mark.unit


def test_the_regions_are_those_that_aws_has_eks_in() -> None:
    session = pytest.importorskip("botocore.session").get_session()
    assert {
        name: tuple(session.get_available_regions("eks", name)) for name in session.get_available_partitions()
    } == aws_values.PARTITIONS
