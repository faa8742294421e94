"""Programs beside the members: the node simulator, and the second scheduler that a stack declares."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from infra.plan import quotas, scheduler
from lab.plane import Member, ports
from lab.plane.processes import MEMBERS, SCHEDULER_KEEPER, SECOND_SCHEDULER, SIMULATOR
from tests.build import environments
from tests.lab.plane.conftest import OwnControlPlane
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]


def manifests(*machines: str) -> list[dict[str, Any]]:
    pools = [{"machine": machine} for machine in machines]
    env = environments.on("embedded", *pools, scheduling={"packer": True})
    spaces = [item for item in quotas.namespaces(env) if item["metadata"]["name"] == SECOND_SCHEDULER]
    return [*spaces, *scheduler.manifests(env)]


def send(cluster: OwnControlPlane, verb: tuple[str, ...], *made: dict[str, Any]) -> None:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(made)})
    cluster.kubectl(*verb, "-f", "-", input=text)


@pytest.fixture
def kept(own: OwnControlPlane) -> Iterator[OwnControlPlane]:
    own.start(simulator=True)
    yield own
    if SCHEDULER_KEEPER not in own.pids():
        own.start(simulator=True)
    own.kubectl("delete", "namespace", SECOND_SCHEDULER, "--ignore-not-found", "--wait=true")


def member(cluster: OwnControlPlane, name: str) -> Member:
    return next(row for row in cluster.plane.status().members if row.name == name)


def packer(cluster: OwnControlPlane) -> int:
    """Its process id, once it works: a wrong configuration or permission ends it at once."""
    until(lambda: SECOND_SCHEDULER in cluster.pids(), what=cluster.layout.log(SCHEDULER_KEEPER).read_text)
    pid = cluster.pids()[SECOND_SCHEDULER]
    log = cluster.layout.log(SECOND_SCHEDULER)
    until(lambda: "Starting" in log.read_text() or "Caches are synced" in log.read_text(), what=log.read_text)
    time.sleep(1)
    assert cluster.pids().get(SECOND_SCHEDULER) == pid, log.read_text()
    return pid


def test_it_follows_what_is_declared(kept: OwnControlPlane) -> None:
    before = manifests("g4.p4.40g")
    send(kept, ("apply", "--server-side"), *before)
    first = packer(kept)
    row = member(kept, SECOND_SCHEDULER)
    assert (row.running, row.port) == (True, None)
    kept.start(simulator=True)
    assert kept.messages == []
    assert kept.pids()[SECOND_SCHEDULER] == first, "a start leaves it alone"
    # An update creates the new configuration first, and deletes the old one at its end.
    after = manifests("g4.p4.40g", "g2.5xlarge")
    after[-1]["data"]["config.yaml"] += "# another\n"
    after[-1]["metadata"]["name"] += "-2"
    send(kept, ("apply", "--server-side"), after[-1])
    until(lambda: kept.pids().get(SECOND_SCHEDULER, first) != first, what="the new configuration is not read")
    second = packer(kept)
    send(kept, ("delete",), before[-1])
    time.sleep(1.5)
    assert kept.pids()[SECOND_SCHEDULER] == second
    kept.kill(SECOND_SCHEDULER)
    assert packer(kept) != second, "killed, it is started again"
    send(kept, ("delete",), after[-1])
    until(lambda: SECOND_SCHEDULER not in kept.pids(), what="it runs on, but its configuration is deleted")


@pytest.fixture
def simulated(own: OwnControlPlane) -> OwnControlPlane:
    own.start(simulator=True)
    return own


def stays(cluster: OwnControlPlane) -> int:
    """The simulator's process id, once its port answers: a wrong argument ends it at once."""
    pid = cluster.pids()[SIMULATOR]
    port = member(cluster, SIMULATOR).port
    assert port
    until(lambda: not ports.is_free(port), what=cluster.layout.log(SIMULATOR).read_text)
    assert cluster.pids()[SIMULATOR] == pid
    return pid


def test_it_runs_beside_the_members_and_a_second_start_leaves_it(simulated: OwnControlPlane) -> None:
    pid = stays(simulated)
    simulated.start(simulator=True)
    assert simulated.messages == []
    assert simulated.pids()[SIMULATOR] == pid
    row = member(simulated, SIMULATOR)
    assert (row.running, row.port in range(ports.FIRST, ports.LAST + 1)) == (True, True)
    assert row.rss_bytes > 10 * 2**20


def test_killed_it_is_started_again(simulated: OwnControlPlane) -> None:
    before = simulated.pids()
    simulated.kill(SIMULATOR)
    simulated.start(simulator=True)
    after = simulated.pids()
    assert after[SIMULATOR] != before[SIMULATOR]
    assert {name: after[name] for name in MEMBERS} == {name: before[name] for name in MEMBERS}
    assert simulated.layout.log(SIMULATOR).with_name("simulator.previous.log").exists()


@pytest.mark.parametrize("newer", ["kubeconfig", "code"])
def test_newer_input_gives_it_a_new_start(
    simulated: OwnControlPlane, monkeypatch: pytest.MonkeyPatch, newer: str
) -> None:
    before = simulated.pids()[SIMULATOR]
    if newer == "kubeconfig":
        simulated.paths.kubeconfig.unlink()
    else:
        monkeypatch.setattr("lab.plane.sidecars.newest_source", lambda *modules: time.time())
    simulated.start(simulator=True)
    assert simulated.pids()[SIMULATOR] != before


def test_a_start_without_it_leaves_it_alone_and_a_stop_ends_it(simulated: OwnControlPlane) -> None:
    before = simulated.pids()[SIMULATOR]
    simulated.start(simulator=False)
    assert simulated.pids()[SIMULATOR] == before
    simulated.plane.stop()
    assert simulated.pids() == {}
