"""``gpuform destroy`` killed again and again at random moments, and typed again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

import pytest
import yaml

from tests.destroy.account import Account
from tests.destroy.conftest import POOL, STACK, Small
from tests.destroy.played_karpenter import service, volume

pytestmark = [pytest.mark.cluster, pytest.mark.engine]

KILLS = 20
LONGEST_S = 5.0
"""A run that nobody ends takes three or four times as long, so kills come at every place of it."""


def test_twenty_kills_and_the_same_command_again(small: Small, account: Account) -> None:
    moments = random.Random(7)
    kills, stacks = 0, 0
    while kills < KILLS:
        ours, foreign = _filled(small, account)
        stacks += 1
        with small.karpenter(account).living():
            while not _ends_within(small, moments.uniform(0.2, LONGEST_S) if kills < KILLS else None):
                kills += 1
        assert small.resources() == []
        assert small.ours() == []
        assert not ours & (account.interfaces() | account.running() | account.groups())
        assert foreign <= account.interfaces()
    print(f"{kills} kills on {stacks} stacks")


def _filled(small: Small, account: Account) -> tuple[set[str], set[str]]:
    """The stack with nodes, a load balancer and data; ids at AWS of what is to go, and of what is to stay."""
    small.up()
    karpenter = small.karpenter(account)
    karpenter.launch(POOL, 2, account.subnet)
    small.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([service("shop"), *volume("data")]))
    ours = {
        account.of_the_cni(),
        account.instance(account.karpenters),
        account.group("eks-cluster-sg", {"aws:eks:cluster-name": STACK}),
        *karpenter.instances.values(),
    }
    return ours, {account.of_the_cni(subnet=account.other_subnet)}


def _ends_within(small: Small, seconds: float | None) -> bool:
    """Whether the command ended by itself, and then well; else all of it was killed."""
    command = small.checkout.command("destroy", STACK, "--offline", "--yes")
    run = subprocess.Popen(
        command,
        env=small.checkout.env,
        cwd=small.checkout.paths.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = run.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        said, _ = run.communicate()
        print("killed after", round(seconds or 0, 1), (said.splitlines() or ["-"])[-1])
        return False
    assert run.returncode == 0, said
    print("ended", time.monotonic())
    return True
