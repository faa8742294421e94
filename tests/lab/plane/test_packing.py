"""The second scheduler: runs while a stack declares one, restarts when it changes or dies, ends with it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from infra.config import parse
from infra.plan import scheduler, workloads
from lab.plane.processes import KEEPER, MEMBERS, PACKER
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
    spaces = [one for one in workloads.namespaces(env) if one["metadata"]["name"] == PACKER]
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


def test_nobody_has_declared_one(kept: Own) -> None:
    time.sleep(1.5)
    assert set(kept.pids()) >= {*MEMBERS, KEEPER}
    assert PACKER not in kept.pids()
    rows = {member.name: member for member in kept.plane.status().members}
    assert rows[KEEPER].running
    assert PACKER not in rows


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


def test_it_goes_with_its_keeper_and_comes_back_with_a_start(kept: Own) -> None:
    send(kept, ("apply", "--server-side"), *manifests("g4.p4.40g"))
    packer(kept)
    kept.kill(KEEPER)
    until(lambda: PACKER not in kept.pids(), what="the packer still runs, but its keeper has ended")
    kept.start(simulator=True)
    packer(kept)
    kept.plane.stop()
    assert kept.pids() == {}
    kept.start(simulator=True)
    packer(kept)
