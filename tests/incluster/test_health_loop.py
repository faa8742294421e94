"""What the health loop reads and does to a node, also on a second try; what restores one; days of it.

One invalid value on a node must not stop it for all. Over many days with a hostile environment no healthy
node is cordoned, no broken one forgotten.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from infra.incluster import decisions, model, reporting
from infra.incluster.actions import RECORD, REPAIRED, NodeActions, read_node
from infra.incluster.model import Step
from tests.fakes.http_server import serving
from tests.incluster.fake_cluster import FakeCluster
from tests.incluster.fake_loop import CORDON, NOW, FakeLoop, State, fault, node, nodes, taken
from tests.incluster.simulation import Simulation

pytestmark = pytest.mark.unit


@pytest.fixture
def server() -> FakeCluster:
    cluster = FakeCluster()
    cluster.add("n", "uid-n", "burst", own_offers=True)
    return cluster


def execute(server: FakeCluster, action: str, at: float = NOW) -> str:
    step = Step(action, "n", "replace", (fault("n"),), "", at)
    return NodeActions(server).execute(step, server.nodes_by_name["n"], NOW)


def test_repeated_action_keeps_the_repair_and_boot_noted_since(server: FakeCluster) -> None:
    execute(server, "cordon")
    server.annotate("n", **{REPAIRED: "new GPU"})
    server.nodes_by_name["n"]["status"]["nodeInfo"]["bootID"] = "boot-1"
    assert execute(server, "ticket") == "ticket gpu-ticket-n"
    annotations = server.nodes_by_name["n"]["metadata"]["annotations"]
    assert annotations[REPAIRED] == "new GPU"
    assert json.loads(annotations[RECORD])["boot"] == "boot-0"
    foreign = {"key": "team", "value": "a", "effect": "NoExecute"}
    server.touch("n", taints=[foreign])
    execute(server, "ticket")
    assert server.taint("n") == "replace"
    assert foreign in server.nodes_by_name["n"]["spec"]["taints"]


def test_a_later_ticket_changes_nothing_else_and_is_noted_after_it_is_written(server: FakeCluster) -> None:
    execute(server, "cordon")
    before = server.nodes_by_name["n"]
    server.before = lambda method, path: pytest.fail(path) if server.maps == {} and "nodes" in path else None
    assert execute(server, "ticket", at=0) == "ticket gpu-ticket-n"
    after = server.nodes_by_name["n"]
    old, new = (json.loads(node["metadata"]["annotations"][RECORD]) for node in (before, after))
    assert new == {**old, "action": "ticket"}
    assert (after["spec"], after["status"]) == (before["spec"], before["status"])
    assert server.maps["gpu-ticket-n"]["metadata"]["labels"] == {"gpuform.io/ticket": "open"}


@pytest.mark.parametrize("host", ["", "[::1]", "127.0.0.1"])
def test_endpoint_answers_on_ipv6_and_ipv4(host: str) -> None:
    server = reporting.serve((host, 0), reporting.Metrics(), lambda: True)
    try:
        for address in (host,) if host else ("[::1]", "127.0.0.1"):
            url = f"http://{address}:{server.server_port}/healthz"
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.status == 200
    finally:
        server.shutdown()
        server.server_close()


GOOD = {
    "metric": {"node": "n", "class": "reset", "gpu": "3", "UUID": "GPU-3", "xid": "48", "reason": "xid"},
    "value": [1, "1"],
}


def response(*series: Any, status: str = "success", kind: str = "vector") -> dict[str, Any]:
    return {"status": status, "data": {"resultType": kind, "result": list(series)}}


def test_queries_read_no_scraped_series() -> None:
    """A tenant's exporter may have series of any name, but each has the label of its scrape's job."""
    matchers = re.findall(r"gpuform:[a-z:_]+(\{.*?\})?", model.SERIES + model.MEASURED)
    assert matchers == ['{job=""}'] * 4


@dataclasses.dataclass
class Asked:
    """A Prometheus that redirects to ``elsewhere``, if given, and records who asks."""

    elsewhere: str = ""
    shown: list[str | None] = dataclasses.field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[str]:
        asked = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.shown.append(self.headers["Authorization"])
                self.send_response(302 if asked.elsewhere else 200)
                self.send_header("Location", asked.elsewhere + self.path)
                self.end_headers()
                self.wfile.write(json.dumps(response(GOOD)).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        with serving(Handler) as at:
            yield f"http://{at}"


@pytest.mark.parametrize(
    ("keys", "header"),
    [
        ({"token": "abc\n"}, "Bearer abc"),
        (
            {"username": "me", "password": "pä:ss\n"},
            f"Basic {base64.b64encode('me:pä:ss'.encode()).decode()}",
        ),
    ],
)
def test_credentials_are_shown_to_prometheus_and_to_no_address_that_it_names(
    tmp_path: Path, keys: dict[str, str], header: str
) -> None:
    for key, text in keys.items():
        (tmp_path / key).write_text(text)
    other = Asked()
    with other.serve() as elsewhere:
        first = Asked(elsewhere)
        with first.serve() as address:
            assert model.get_faults(address, tmp_path) == model.parse_faults(response(GOOD))
            assert model.get_faults(address) == model.parse_faults(response(GOOD))
    assert (first.shown, other.shown) == ([header, None], [None, None])


def test_a_token_that_is_no_header_is_not_printed(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\ndef")
    with pytest.raises(ValueError, match=r"^the token of its Secret is not one word of ASCII$"):
        model.get_faults("http://127.0.0.1:1", tmp_path)


def test_faults_are_read_from_an_answer() -> None:
    assert [tuple(vars(fault_).values()) for fault_ in model.parse_faults(response(GOOD))] == [
        ("n", "3", "GPU-3", "48", "reset", "xid")
    ]
    assert model.parse_faults(response()) == []
    assert model.parse_faults(response({**GOOD, "value": [1, "0"]})) == []
    nowhere = {**GOOD, "metric": {**GOOD["metric"], "node": ""}}
    assert len(model.parse_faults(response(nowhere, GOOD))) == 1
    lost = {"metric": {"node": "n", "class": "replace", "reason": "gpu_lost"}, "value": [1, "1"]}
    (lost_fault,) = model.parse_faults(response(lost))
    assert lost_fault.text == "GPU ?: gpu_lost, class replace"


def test_nodes_are_read_from_an_answer() -> None:
    series = [{"metric": {"node": name}, "value": [1, "8"]} for name in ("n", "m")]
    assert model.parse_nodes(response(*series)) == {"n", "m"}
    assert model.parse_nodes(response()) == frozenset()
    for invalid in (None, [], {"status": "error"}, response(kind="matrix"), response({"metric": {}})):
        with pytest.raises(ValueError, match=r"\w"):
            model.parse_nodes(invalid)


@pytest.mark.parametrize(
    "invalid",
    [
        None,
        [],
        "x",
        {"status": "error", "error": "x"},
        response(status="error"),
        response(kind="matrix"),
        {"status": "success", "data": None},
        response({**GOOD, "metric": {"node": "n"}}),
        response({**GOOD, "metric": {**GOOD["metric"], "class": "terrible"}}),
        response({**GOOD, "value": [1]}),
        response({**GOOD, "value": [1, "much"]}),
        response(GOOD, {"metric": {}, "value": [1, "1"]}),
    ],
)
def test_an_invalid_answer_is_refused(invalid: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        model.parse_faults(invalid)


def node_with_record(record: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "n", "uid": "u", "annotations": {RECORD: record}},
        "spec": {},
        "status": {},
    }


@pytest.mark.parametrize(
    "record",
    [
        "no JSON",
        "[]",
        "{}",
        '{"class": "reset", "faults": 5}',
        '{"class": "reset", "faults": null}',
        '{"class": "reset", "faults": [[]]}',
    ],
)
def test_an_unreadable_record_is_none_and_the_loop_goes_on(record: str) -> None:
    node = read_node(node_with_record(record), {}, NOW)
    assert node.record is None
    steps, _ = decisions.decide(CORDON, [node], [fault("n")], State(), {}, NOW)
    assert [step.action for step in steps] == ["cordon"]


def test_a_record_of_the_loops_own_is_read() -> None:
    node = read_node(
        node_with_record('{"class": "reset", "faults": ["n|GPU-n-0|79|reset|xid"], "boot": "b"}'), {}, NOW
    )
    assert node.record is not None
    assert node.record["faults"] == ["n|GPU-n-0|79|reset|xid"]


def quiet_after(loop: FakeLoop, start: float, seconds: float) -> list[tuple[str, str]]:
    """Actions during a time without faults, with polls every 15 s."""
    rounds = range(int(seconds / 15) + 1)
    return [action for number in rounds for action in taken(loop.run([], start + 15 * number))]


def test_a_fault_that_is_no_longer_seen_is_not_repaired() -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00", "reset", "48"), fault("n00")], NOW)
    assert quiet_after(loop, NOW + 15, 7200) == []
    assert loop.nodes["n00"].taint == "replace"


def test_a_reboot_repairs_a_reset_and_not_a_replacement() -> None:
    loop = FakeLoop(nodes(20))
    loop.run([fault("n00", "reset", "48"), fault("n01")], NOW)
    for name in ("n00", "n01"):
        loop.change_node(name, boot_id="boot-2")
    done = quiet_after(loop, NOW + 15, 1200)
    assert ("lift", "n00") in done
    assert ("lift", "n01") not in done
    assert loop.nodes["n00"].record is None
    assert loop.nodes["n01"].taint == "replace"


def test_what_a_person_has_repaired_comes_back_once_it_has_been_well_for_long_enough() -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00")], NOW)
    loop.change_node("n00", repaired="new GPU")
    assert loop.run([fault("n00")], NOW + 15)[0].reason == f"fault still active: {fault('n00').text}"
    # Silent since NOW + 15, so that it is over at NOW + 615; a lost GPU is silent, too.
    assert {action for action, _ in quiet_after(loop, NOW + 30, 570)} == {"wait"}
    loop.change_node("n00", missing="it offers 7 of 8 nvidia.com/gpu")
    assert loop.run([], NOW + 630)[0].reason == "it offers 7 of 8 nvidia.com/gpu"
    loop.change_node("n00", missing="")
    (lifted,) = loop.run([], NOW + 645)
    assert (lifted.action, lifted.reason) == ("lift", "repaired: new GPU")
    assert taken(loop.run([fault("n00")], NOW + 660)) == [("withhold", "n00")]  # one in five, in an hour


def test_a_node_that_is_not_measured_does_not_return() -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00")], NOW)
    loop.change_node("n00", repaired="new GPU", measured=False)
    assert quiet_after(loop, NOW + 15, 7200) == [("wait", "n00")] * 481
    reason = "not all of its GPUs are measured, so a fault could be missed"
    assert loop.run([], NOW + 7230)[0].reason == reason
    loop.change_node("n00", measured=True)  # the quiet time starts here: before, nothing was measured
    assert {action for action, _ in quiet_after(loop, NOW + 7245, 570)} == {"wait"}
    assert taken(loop.run([], NOW + 7845)) == [("lift", "n00")]


def test_a_fault_that_hides_behind_a_silent_exporter_is_the_same_when_it_shows_again() -> None:
    loop = FakeLoop(nodes(20))
    loop.run([fault("n00")], NOW)
    loop.change_node("n00", measured=False)
    assert quiet_after(loop, NOW + 15, 1200) == []
    loop.change_node("n00", measured=True, record=None, taint=None)  # a person removed both
    assert loop.run([fault("n00")], NOW + 1230) == []


def test_a_restart_starts_the_settling_time_anew() -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00")], NOW)
    loop.change_node("n00", repaired="yes")
    assert {action for action, _ in quiet_after(loop, NOW + 15, 500)} == {"wait"}
    loop.restart()
    assert {action for action, _ in quiet_after(loop, NOW + 530, 585)} == {"wait"}
    assert taken(loop.run([], NOW + 1130)) == [("lift", "n00")]


def test_a_taint_that_somebody_took_comes_back() -> None:
    loop = FakeLoop(nodes(5))
    loop.run([fault("n00")], NOW)
    loop.change_node("n00", taint=None)
    assert taken(loop.run([fault("n00")], NOW + 15)) == [("restore", "n00")]


def test_a_new_node_of_an_old_name_does_not_inherit_the_fault() -> None:
    loop = FakeLoop(nodes(20))
    loop.run([fault("n00")], NOW)
    loop.nodes["n00"] = dataclasses.replace(node("n00"), uid="other", first_seen=NOW + 60)
    assert loop.run([fault("n00")], NOW + 75) == []
    # But a fault that is still there after all old ones have faded counts.
    assert taken(loop.run([fault("n00")], NOW + 700)) == [("cordon", "n00")]


@pytest.mark.parametrize(("mode", "days"), [("ticket", 12), ("cordon", 3)])
def test_no_healthy_node_is_cordoned_and_no_broken_one_forgotten(mode: str, days: float) -> None:
    simulation = Simulation(1, mode)
    simulation.run(days)
    assert {"broke", "cordoned", "repaired", "returned", "request failed"} <= simulation.events.keys()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_no_healthy_node_is_cordoned_in_a_thousand_days(seed: int) -> None:
    simulation = Simulation(seed, "ticket")
    simulation.run(250)
    things = {"broke", "cordoned", "ticket", "repaired", "returned", "request failed", "killed"}
    assert simulation.events.keys() == things
