"""Programs beside the members: the node simulator, and the second scheduler that a stack declares."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import parse
from infra.plan import room, scheduler
from lab.plane import ports
from lab.plane.processes import KEEPER, MEMBERS, PACKER, SIMULATOR
from tests.lab.plane.conftest import Own
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def manifests(*machines: str) -> list[dict[str, Any]]:
    env = parse(
        {
            "name": "e",
            "cluster": {"kind": "embedded"},
            "pools": [
                {"name": f"p{index}", "machine": machine, "nodes": 1}
                for index, machine in enumerate(machines)
            ],
            "scheduling": {"packer": True},
        }
    )
    spaces = [one for one in room.namespaces(env) if one["metadata"]["name"] == PACKER]
    return [*spaces, *scheduler.manifests(env)]


def send(cluster: Own, verb: tuple[str, ...], *made: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(made)})
    cluster.kubectl(*verb, "-f", "-", input=text)


@pytest.fixture
def kept(own: Own) -> Iterator[Own]:
    own.start(simulator=True)
    yield own
    if KEEPER not in own.pids():
        own.start(simulator=True)
    own.kubectl("delete", "namespace", PACKER, "--ignore-not-found", "--wait=true")


def packer(cluster: Own) -> int:
    """Its process id, once it works: a wrong configuration or permission ends it at once."""
    until(lambda: PACKER in cluster.pids(), what=cluster.layout.log(KEEPER).read_text)
    pid = cluster.pids()[PACKER]
    log = cluster.layout.log(PACKER)
    until(lambda: "Starting" in log.read_text() or "Caches are synced" in log.read_text(), what=log.read_text)
    time.sleep(1)
    assert cluster.pids().get(PACKER) == pid, log.read_text()
    return pid


def test_it_follows_what_is_declared(kept: Own) -> None:
    before = manifests("g4.p4.40g")
    send(kept, ("apply", "--server-side"), *before)
    first = packer(kept)
    rows = {member.name: member for member in kept.plane.status().members}
    assert rows[PACKER].running
    assert rows[PACKER].port is None
    kept.start(simulator=True)
    assert kept.said == []
    assert kept.pids()[PACKER] == first, "a start leaves it alone"
    # An update creates the new configuration first, and deletes the old one at its end.
    after = manifests("g4.p4.40g", "g2.5xlarge")
    after[-1]["data"]["config.yaml"] += "# another\n"
    after[-1]["metadata"]["name"] += "-2"
    send(kept, ("apply", "--server-side"), after[-1])
    until(lambda: kept.pids().get(PACKER, first) != first, what="the new configuration is not taken up")
    second = packer(kept)
    send(kept, ("delete",), before[-1])
    time.sleep(1.5)
    assert kept.pids()[PACKER] == second
    kept.kill(PACKER)
    assert packer(kept) != second, "killed, it is started again"
    send(kept, ("delete",), after[-1])
    until(lambda: PACKER not in kept.pids(), what="the packer still runs, but its configuration is deleted")


@pytest.fixture
def simulated(own: Own) -> Own:
    own.start(simulator=True)
    return own


def stays(cluster: Own) -> int:
    """The simulator's process id, once its port answers: a wrong argument ends it at once."""
    pid = cluster.pids()[SIMULATOR]
    rows = {member.name: member for member in cluster.plane.status().members}
    until(lambda: not ports.is_free(rows[SIMULATOR].port), what=cluster.layout.log(SIMULATOR).read_text)
    assert cluster.pids()[SIMULATOR] == pid
    return pid


def test_it_runs_beside_the_members_and_a_second_start_leaves_it(simulated: Own) -> None:
    pid = stays(simulated)
    simulated.start(simulator=True)
    assert simulated.said == []
    assert simulated.pids()[SIMULATOR] == pid
    rows = {member.name: member for member in simulated.plane.status().members}
    assert rows[SIMULATOR].running
    assert rows[SIMULATOR].port in range(ports.FIRST, ports.LAST + 1)
    assert rows[SIMULATOR].rss_bytes > 10 * 2**20


def test_killed_it_is_started_again(simulated: Own) -> None:
    before = simulated.pids()
    simulated.kill(SIMULATOR)
    simulated.start(simulator=True)
    after = simulated.pids()
    assert after[SIMULATOR] != before[SIMULATOR]
    assert {name: after[name] for name in MEMBERS} == {name: before[name] for name in MEMBERS}
    assert simulated.layout.log(SIMULATOR).with_name("simulator.previous.log").exists()


@pytest.mark.parametrize("newer", ["kubeconfig", "code"])
def test_newer_input_gives_it_a_new_start(
    simulated: Own, monkeypatch: pytest.MonkeyPatch, newer: str
) -> None:
    before = simulated.pids()[SIMULATOR]
    if newer == "kubeconfig":
        simulated.paths.kubeconfig.unlink()
    else:
        monkeypatch.setattr("lab.plane.sidecars.newest_source", lambda *modules: time.time())
    simulated.start(simulator=True)
    assert simulated.pids()[SIMULATOR] != before


def test_a_start_without_it_leaves_it_alone_and_a_stop_ends_it(simulated: Own) -> None:
    before = simulated.pids()[SIMULATOR]
    simulated.start(simulator=False)
    assert simulated.pids()[SIMULATOR] == before
    simulated.plane.stop()
    assert simulated.pids() == {}
