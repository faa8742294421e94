"""Each stack by plain Pulumi. test_onprem does this for own hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.journey.aws_world import world
from tests.journey.conftest import User

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

STACKS = ("local", "aws-dev", "aws-prod", "openstack-dev")


@pytest.mark.nightly
@pytest.mark.parametrize("stack", STACKS)
def test_plain_pulumi_previews_and_makes_a_stack(stack: str, tmp_path: Path) -> None:
    with world(tmp_path, stack) as made:
        user = User(made.checkout.paths, stack, tmp_path / "user", offline=stack != "local")
        planned, done = user.preview(), user.up()
        [wanted] = [line for line in planned.splitlines() if "to create" in line]
        [created] = [line for line in done.splitlines() if re.fullmatch(r" +\+ \d+ created", line)]
        assert wanted.split()[1] == created.split()[1]
        assert f"{created.split()[1]} unchanged" in user.up()
