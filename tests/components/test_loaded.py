"""Which modules a program loads: a cloud's SDK, Ansible and botocore each take longer than the program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.components.aws_stacks import ROOT

pytestmark = [pytest.mark.unit, pytest.mark.tools]

LOADED = """
import sys
import infra.__main__
from tests.components import aws_stacks, openstack_stacks, test_program
from tests.components.recording import record
for environment in ({},):
    record(environment)
names = [name.split(".") for name in sys.modules]
foreign = ("ansible", "ansible_runner", "botocore", "openstack")
ours = ("infra.program.aws", "infra.program.hosts", "infra.program.openstack", "components.host_cluster")
found = {{name[0] for name in names if name[0] in foreign}} | {{name for name in ours if name in sys.modules}}
sdks = ("pulumi_aws", "pulumi_openstack")
print(*sorted(found | {{name[1] for name in names if name[0] in sdks and len(name) > 2}}))
"""


@pytest.mark.parametrize(
    ("environments", "loaded"),
    [
        ("aws_stacks.stack('local'), test_program.existing()", ""),
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
