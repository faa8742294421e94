"""The node simulator as a member: starts with the others, restarts after it dies or its input changes."""

from __future__ import annotations

import importlib.util
import time

import pytest

from lab.plane import ports
from lab.plane.processes import MEMBERS, SIMULATOR
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        importlib.util.find_spec("lab.simulator.__main__") is None,
        reason="lab.simulator has no __main__ module",
    ),
    pytest.mark.nightly,
]


@pytest.fixture
def simulated(own):
    own.start(simulator=True)
    return own


def stays(cluster) -> int:
    """The simulator's process id, once its port answers: a wrong argument ends it at once."""
    pid = cluster.pids()[SIMULATOR]
    rows = {member.name: member for member in cluster.plane.status().members}
    until(lambda: not ports.is_free(rows[SIMULATOR].port), what=cluster.layout.log(SIMULATOR).read_text)
    assert cluster.pids()[SIMULATOR] == pid
    return pid


def test_it_runs_beside_the_members_and_a_second_start_leaves_it(simulated):
    pid = stays(simulated)
    simulated.start(simulator=True)
    assert simulated.said == []
    assert simulated.pids()[SIMULATOR] == pid
    rows = {member.name: member for member in simulated.plane.status().members}
    assert rows[SIMULATOR].running
    assert rows[SIMULATOR].port in range(ports.FIRST, ports.LAST + 1)
    assert rows[SIMULATOR].rss_bytes > 10 * 2**20


def test_killed_it_is_started_again(simulated):
    before = simulated.pids()
    simulated.kill(SIMULATOR)
    simulated.start(simulator=True)
    after = simulated.pids()
    assert after[SIMULATOR] != before[SIMULATOR]
    assert {name: after[name] for name in MEMBERS} == {name: before[name] for name in MEMBERS}
    assert simulated.layout.log(SIMULATOR).with_name("simulator.previous.log").exists()


def test_a_new_kubeconfig_gives_it_a_new_start(simulated):
    before = simulated.pids()[SIMULATOR]
    simulated.paths.kubeconfig.unlink()
    simulated.start(simulator=True)
    assert simulated.pids()[SIMULATOR] != before


def test_newer_code_gives_it_a_new_start(simulated, monkeypatch):
    before = simulated.pids()[SIMULATOR]
    monkeypatch.setattr("lab.plane.sidecars.newest_source", lambda *modules: time.time())
    simulated.start(simulator=True)
    assert simulated.pids()[SIMULATOR] != before


def test_a_start_without_it_leaves_it_alone_and_a_stop_ends_it(simulated):
    before = simulated.pids()[SIMULATOR]
    simulated.start(simulator=False)
    assert simulated.pids()[SIMULATOR] == before
    simulated.plane.stop()
    assert simulated.pids() == {}
