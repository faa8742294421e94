"""A cloud's SDK that is not installed: what the program and each command say."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from gpuform.cli.main import app
from infra.__main__ import cluster
from infra.config import parse
from infra.model.base.errors import InputError
from tests.components.aws_stacks import stack
from tests.components.openstack_stacks import small

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(("kind", "declared"), [("aws", stack("aws-dev")), ("openstack", small())])
def test_a_missing_sdk_is_named_with_its_extra(
    kind: str, declared: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, f"infra.program.{kind}", raising=False)
    monkeypatch.setitem(sys.modules, f"pulumi_{kind}", None)
    with pytest.raises(InputError) as missing:
        cluster(parse(declared))
    assert str(missing.value) == f"pulumi-{kind}: is not installed; pip install 'gpuform[{kind}]'"


@pytest.mark.parametrize("command", ["up {} --offline", "preview {} --offline", "rehearse {}"])
@pytest.mark.parametrize("kind", ["aws", "openstack"])
def test_a_command_says_so_before_it_starts_anything(
    command: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gpuform.stack.preflight.check.find_spec",
        lambda name: None if name == f"pulumi_{kind}" else find_spec(name),
    )
    done = CliRunner().invoke(app, command.format(f"{kind}-dev").split())
    assert done.exit_code == 2
    assert f"error: pulumi-{kind}: is not installed; pip install 'gpuform[{kind}]'\n" in done.stderr
