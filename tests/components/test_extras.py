"""A program whose cloud's SDK is not installed."""

from __future__ import annotations

import sys

import pytest

from infra.__main__ import cluster
from infra.config import parse
from infra.model.errors import InputError
from tests.components.aws_stacks import stack
from tests.components.openstack_stacks import small

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("kind", "declared"), [("aws", stack("aws-dev")), ("openstack", small())])
def test_a_missing_sdk_is_named_with_its_extra(
    kind: str, declared: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"infra.{kind}", raising=False)
    monkeypatch.setitem(sys.modules, f"pulumi_{kind}", None)
    with pytest.raises(InputError) as missing:
        cluster(parse(declared))
    assert str(missing.value) == f"pulumi-{kind}: is not installed; pip install 'gpuform[{kind}]'"
