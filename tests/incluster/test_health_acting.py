"""What the health loop does to a node, also on a second try, and where it tells about itself."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import pytest

from infra.incluster import told
from infra.incluster.acting import RECORD, REPAIRED, Hand
from infra.incluster.cases import Step
from tests.incluster.played_cluster import PlayedCluster
from tests.incluster.played_judge import NOW, fault

pytestmark = pytest.mark.unit


@pytest.fixture
def played() -> PlayedCluster:
    found = PlayedCluster()
    found.add("n", "uid-n", "burst", "aws:///1", karpenters=True)
    return found


def claim(played: PlayedCluster, machine: str, name: str = "claim") -> None:
    meta = {"name": name, "uid": name}
    played.claims[name] = {"metadata": meta, "status": {"nodeName": "n", "providerID": machine}}


def do(played: PlayedCluster, action: str) -> str:
    step = Step(action, "n", "replace", (fault("n"),), "", NOW)
    return Hand(played).do(step, played.nodes_by_name["n"], NOW)


def test_a_removal_is_requested_once(played: PlayedCluster) -> None:
    removed: list[Any] = []
    played.on_delete = removed.append
    claim(played, "aws:///1")
    assert do(played, "replace") == "NodeClaim claim deleted"
    assert do(played, "replace") == "NodeClaim claim is being deleted"
    assert len(removed) == 1
    assert not played.maps


def test_the_claim_of_another_machine_with_the_same_node_name_is_left_alone(played: PlayedCluster) -> None:
    claim(played, "aws:///2")
    assert do(played, "replace") == "ticket gpu-ticket-n"
    assert "deletionTimestamp" not in played.claims["claim"]["metadata"]


def test_a_second_try_leaves_what_was_noted_since_the_first(played: PlayedCluster) -> None:
    do(played, "cordon")
    played.annotate("n", **{REPAIRED: "new GPU"})
    played.nodes_by_name["n"]["status"]["nodeInfo"]["bootID"] = "boot-1"
    assert do(played, "ticket") == "ticket gpu-ticket-n"
    notes = played.nodes_by_name["n"]["metadata"]["annotations"]
    assert notes[REPAIRED] == "new GPU"
    assert json.loads(notes[RECORD])["boot"] == "boot-0"
    played.touch("n", taints=[])
    do(played, "ticket")
    assert played.taint("n") == "replace"


@pytest.mark.parametrize("host", ["", "[::1]", "127.0.0.1"])
def test_its_endpoint_answers_on_ipv6_and_ipv4(host: str) -> None:
    server = told.serve((host, 0), told.Metrics(), lambda: True)
    try:
        for address in (host,) if host else ("[::1]", "127.0.0.1"):
            url = f"http://{address}:{server.server_port}/healthz"
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.status == 200
    finally:
        server.shutdown()
        server.server_close()
