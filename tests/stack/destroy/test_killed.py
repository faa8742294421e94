"""``gpuform destroy`` killed repeatedly at random moments, and run again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass

import pytest
import yaml

from tests.fakes.moto import Account
from tests.stack.destroy.conftest import POOL, STACK, Small
from tests.stack.destroy.played_karpenter import service, volume

pytestmark = [pytest.mark.cluster, pytest.mark.engine, pytest.mark.nightly]

KILLS = 20
MOST_LINES = 45
"""Most lines of a run before it is killed: a plan has 20, a whole destroy six times as many."""
LONGEST_S = 0.6


@dataclass(frozen=True)
class Moment:
    """When a run is killed: ``seconds`` after ``lines`` lines, so that a busy machine changes nothing.

    With 0 lines it is killed while it starts.
    """

    lines: int
    seconds: float


def test_twenty_kills_and_the_same_command_again(small: Small, account: Account) -> None:
    chance = random.Random(7)
    kills: list[str] = []
    while len(kills) < KILLS:
        ours, foreign = _filled(small, account)
        with small.karpenter(account).living():
            while (last := _killed(small, _moment(chance) if len(kills) < KILLS else None)) is not None:
                kills.append(last)
        assert small.resources() == []
        assert small.ours() == []
        assert not ours & (account.interfaces() | account.running() | account.groups())
        assert foreign <= account.interfaces()
    print("last words:", *kills, sep="\n  ")


def _moment(chance: random.Random) -> Moment:
    lines = chance.randint(0, MOST_LINES)
    return Moment(lines, chance.uniform(0, LONGEST_S if lines else 4 * LONGEST_S))


def _filled(small: Small, account: Account) -> tuple[set[str], set[str]]:
    """The stack with nodes, a load balancer and data; ids at AWS to be deleted, and ids to be kept."""
    small.up()
    karpenter = small.karpenter(account)
    karpenter.launch(POOL, 2, account.subnet)
    small.kubectl("apply", "-f", "-", input=yaml.safe_dump_all([service("shop"), *volume("data")]))
    ours = {
        account.cni_interface(),
        account.instance(account.karpenter_tags),
        account.group("eks-cluster-sg", {"aws:eks:cluster-name": STACK}),
        *karpenter.instances.values(),
    }
    return ours, {account.cni_interface(subnet=account.other_subnet)}


def _begun(small: Small, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        small.checkout.command(*words),
        env=small.checkout.env,
        cwd=small.checkout.paths.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _killed(small: Small, moment: Moment | None) -> str | None:
    """Last line of a run that was killed with all its children; None if the run succeeded."""
    run = _begun(small, "destroy", STACK, "--offline", "--yes")
    assert run.stdout is not None
    message: list[str] = []
    while (moment is None or len(message) < moment.lines) and (line := run.stdout.readline()):
        message.append(line.rstrip())
    if moment is not None:
        time.sleep(moment.seconds)
    if moment is None or run.poll() is not None:
        assert run.wait(120) == 0, "\n".join([*message, run.stdout.read()])
        return None
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    return message[-1] if message else "(nothing)"


def test_what_a_killed_up_has_made_is_destroyed(small: Small, account: Account) -> None:
    """The state lacks the release that it was creating."""
    first = _begun(small, "up", STACK, "--offline")
    assert first.stdout is not None
    assert any("created   Release" in line for line in first.stdout)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert _killed(small, None) is None
    assert small.resources() == []
    left = small.kubectl("get", "secrets", "-A", "-l", "owner=helm", "-o", "name")
    assert left == ""


def test_a_release_that_is_uninstalled_but_still_in_the_state_is_forgotten(small: Small) -> None:
    """As after a kill between Helm's uninstallation and the engine's next write of the state."""
    small.up()
    assert small.kubectl("delete", "secrets", "-n", "monitoring", "-l", "owner=helm,name=monitoring")
    assert _killed(small, None) is None
    assert small.resources() == []
