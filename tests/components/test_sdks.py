"""SDKs of clouds: which ones a program loads, and what is said if one is not installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from gpuform.cli.main import app
from infra.__main__ import cluster
from infra.config import parse
from infra.model.base.errors import InputError
from tests.build.aws_stacks import ROOT, stack
from tests.build.openstack_stacks import small

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
def test_a_missing_sdk_ends_a_command_before_it_starts_anything(
    command: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "gpuform.stack.preflight.check.find_spec",
        lambda name: None if name == f"pulumi_{kind}" else find_spec(name),
    )
    done = CliRunner().invoke(app, command.format(f"{kind}-dev").split())
    assert done.exit_code == 2
    assert f"error: pulumi-{kind}: is not installed; pip install 'gpuform[{kind}]'\n" in done.stderr


LOADED = """
import sys
import infra.__main__
from tests.build import aws_stacks, openstack_stacks
from tests.components import programs
from tests.fakes.recorder import record
list(map(record, [{}]))
names = [name.split(".") for name in sys.modules]
foreign = ("ansible", "ansible_runner", "botocore", "openstack")
ours = ("infra.program.aws", "infra.program.hosts", "infra.program.openstack", "components.host_cluster")
found = {{name[0] for name in names if name[0] in foreign}} | {{name for name in ours if name in sys.modules}}
sdks = ("pulumi_aws", "pulumi_openstack")
print(*sorted(found | {{name[1] for name in names if name[0] in sdks and len(name) > 2}}))
"""


@pytest.mark.tools
@pytest.mark.parametrize(
    ("environments", "loaded"),
    [
        ("aws_stacks.stack('local'), programs.existing()", ""),
        ("aws_stacks.stack('aws-prod')", "cloudwatch ec2 eks iam infra.program.aws kms sqs ssm vpc"),
        ("openstack_stacks.small()", "containerinfra infra.program.openstack"),
        # Ansible runs in the provider's process; the program only declares the run.
        ("aws_stacks.stack('onprem-dev')", "components.host_cluster infra.program.hosts"),
    ],
)
def test_a_target_loads_the_modules_that_it_uses(environments: str, loaded: str) -> None:
    code = LOADED.format(environments)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == loaded
