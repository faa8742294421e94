"""The health loop on a real API server, with only the permissions of its own account."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

from infra.incluster import model
from infra.model.base.namespaces import HEALTH
from tests.conftest import Plane
from tests.incluster.health_cluster import BURST, FakePrometheus, HealthCluster, LoopProcess, environment
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.nightly]

TWENTY = [f"fixed-{number:02}" for number in range(20)]
FAULTY = TWENTY[:8]


@pytest.fixture(scope="module")
def shared_cluster(control_plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthCluster]:
    """A plane without the simulator, so that nodes keep offering what a test sets."""
    stub = FakePrometheus()
    yield HealthCluster(control_plane, tmp_path_factory.mktemp("health"), stub)
    stub.close()
    control_plane.kubectl("delete", "namespace", HEALTH, "--ignore-not-found", "--wait=true")


@pytest.fixture
def cluster(shared_cluster: HealthCluster) -> Iterator[HealthCluster]:
    yield shared_cluster
    shared_cluster.reset()


def require_no_action(loop: LoopProcess, rounds: int = 3) -> None:
    before = loop.actions()
    loop.wait_for_rounds(rounds)
    assert loop.actions() == before


def test_eight_of_twenty_break_in_one_window_and_the_breaker_stops_at_four(cluster: HealthCluster) -> None:
    cluster.install(environment(mode="cordon"))
    cluster.add_nodes(*TWENTY)
    cluster.prometheus.add_faults(*FAULTY)
    cluster.prometheus.add_faults("fixed-10", kind="application", xid="31")
    with cluster.loop() as loop:
        until(lambda: len(loop.actions()), (8).__eq__)
        require_no_action(loop)
        assert loop.actions() == [
            *(("cordon", name, "done") for name in FAULTY[:4]),
            *(("withhold", name, "done") for name in FAULTY[4:]),
        ]
        assert cluster.taints() == dict.fromkeys(FAULTY[:4], "replace")
        metrics = loop.metrics()
        assert metrics["gpuform_health_breaker_open"] == 1
        assert metrics["gpuform_health_budget"] == 4
        assert metrics["gpuform_health_unhealthy_nodes"] == 4
        counter = (
            'gpuform_health_actions_total{node="fixed-00",class="replace",action="cordon",result="done"}'
        )
        assert metrics[counter] == 1
    queries = [parse_qs(urlsplit(path).query)["query"] for path in cluster.prometheus.requests]
    assert {urlsplit(path).path for path in cluster.prometheus.requests} == {"/api/v1/query"}
    assert {query for (query,) in queries} == {model.SERIES, model.MEASURED}
    condition = cluster.condition("fixed-00")
    assert (condition["status"], condition["reason"]) == ("True", "GpuNeedsReplacement")
    assert condition["message"] == "GPU 0 (GPU-fixed-00): XID 79, class replace"
    assert cluster.events("fixed-00") == [("GpuNodeCordoned", condition["message"])]
    ((reason, message),) = cluster.events("fixed-07")
    assert (reason, "4 actions in 3600 s, and the budget is 4" in message) == ("GpuActionWithheld", True)
    assert [reason for reason, _ in cluster.events("gpu-health-state", HEALTH)] == ["GpuHealthBreakerOpened"]
    assert not cluster.condition("fixed-10")

    with cluster.loop() as loop:  # a restart repeats no action, and leaves the breaker as it is
        loop.wait_for_rounds(3)
        assert loop.actions() == []
        assert loop.metrics()["gpuform_health_breaker_open"] == 1
        target = ("-n", HEALTH, "configmap", "gpu-health-state")
        cluster.kubectl("annotate", *target, "gpuform.io/reset-breaker=looked at, a bad cable")
        until(lambda: len(cluster.taints()), (8).__eq__)
        require_no_action(loop)
        assert loop.metrics()["gpuform_health_breaker_open"] == 0
    reasons = [reason for reason, _ in cluster.events("gpu-health-state", HEALTH)]
    assert sorted(reasons) == ["GpuHealthBreakerClosed", "GpuHealthBreakerOpened"]


def test_every_node_gets_a_ticket_and_stays(cluster: HealthCluster) -> None:
    cluster.install(environment(mode="ticket", budget="100%"))
    cluster.add_nodes("burst-a", pool=BURST)
    cluster.add_nodes("fixed-a")
    cluster.prometheus.add_faults("fixed-a")
    cluster.prometheus.add_faults("burst-a", kind="reset", xid="48")
    with cluster.loop() as loop:
        until(lambda: len(loop.actions()), (2).__eq__)
        require_no_action(loop)
    assert cluster.taints() == {"burst-a": "reset", "fixed-a": "replace"}
    ticket, reset = cluster.ticket("fixed-a"), cluster.ticket("burst-a")
    assert ticket
    assert reset
    assert ticket["metadata"]["labels"] == {"gpuform.io/ticket": "open"}
    content = json.loads(ticket["data"]["ticket.json"])
    assert (content["node"], content["pool"], content["class"]) == ("fixed-a", "fixed", "replace")
    assert "- GPU 0 (GPU-fixed-a): XID 79, class replace\n" in ticket["data"]["ticket.md"]
    assert "reboot the machine" in reset["data"]["ticket.md"]


def test_a_node_comes_back_once_it_is_repaired_and_shows_it(cluster: HealthCluster) -> None:
    cluster.install(environment(mode="ticket", budget="100%"))
    cluster.add_nodes("fixed-a", "fixed-b")
    cluster.set_boot_id("fixed-b", "before")
    cluster.prometheus.add_faults("fixed-a")
    cluster.prometheus.add_faults("fixed-b", kind="reset", xid="48")
    with cluster.loop(settle_s=2) as loop:
        until(cluster.taints, {"fixed-a": "replace", "fixed-b": "reset"}.__eq__)
        cluster.set_offers("fixed-a", "0")
        cluster.prometheus.faults = []  # the GPU is lost, and so are its series
        cluster.prometheus.measured.remove("fixed-a")
        loop.wait_for_rounds(4)
        assert cluster.taints() == {"fixed-a": "replace", "fixed-b": "reset"}
        cluster.kubectl("annotate", "node", "fixed-a", "gpuform.io/gpu-repaired=seated anew")
        cluster.set_boot_id("fixed-b", "after")
        until(cluster.taints, {"fixed-a": "replace"}.__eq__)
        until(lambda: ("wait", "fixed-a", "done") in loop.actions(), bool)
        loop.wait_for_rounds(8)  # longer than the settling time
        reasons = [line.get("why") for line in loop.lines()]
        assert "not all of its GPUs are measured, so a fault could be missed" in reasons
        cluster.prometheus.measured.add("fixed-a")
        short = "it offers 0 of 1 nvidia.com/gpu"
        until(lambda: [line.get("why") for line in loop.lines()], lambda reasons: short in reasons)
        cluster.set_offers("fixed-a", "1")
        until(cluster.taints, {}.__eq__)
    node = cluster.node("fixed-a")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["nvidia.com/gpu"]
    assert not [key for key in node["metadata"]["annotations"] if key.startswith("gpuform.io/gpu-")]
    assert cluster.condition("fixed-a")["status"] == "False"
    ticket = cluster.ticket("fixed-a")
    assert ticket
    assert ticket["metadata"]["labels"] == {"gpuform.io/ticket": "closed"}
    assert ticket["data"]["closed"].endswith("repaired: seated anew\n")
    assert ("GpuNodeReturned", "the node was rebooted; ticket gpu-ticket-fixed-b closed") in cluster.events(
        "fixed-b"
    )


def test_who_only_observes_may_not_touch_a_node_and_says_what_it_would_do(cluster: HealthCluster) -> None:
    cluster.install(environment(mode="observe"))
    cluster.add_nodes("fixed-a")
    query = ("auth", "can-i", "--as", f"system:serviceaccount:{HEALTH}:{HEALTH}", "--quiet=false", "--list")
    rights = cluster.kubectl(*query)
    nodes = [line for line in rights.splitlines() if line.startswith("nodes")]
    assert [line.split("[")[-1] for line in nodes] == ["list]"]
    before = cluster.node("fixed-a")
    cluster.prometheus.add_faults("fixed-a")
    with cluster.loop() as loop:
        until(loop.actions, [("observe", "fixed-a", "done")].__eq__)
        require_no_action(loop)
    after = cluster.node("fixed-a")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert [reason for reason, _ in cluster.events("fixed-a")] == ["GpuFaultObserved"]


def test_without_an_answer_nothing_is_done_and_that_is_said_once(cluster: HealthCluster) -> None:
    cluster.install(environment(mode="cordon"))
    cluster.add_nodes("fixed-a")
    cluster.prometheus.add_faults("fixed-a")
    cluster.prometheus.invalid_answer = "<html>a login page</html>"
    with cluster.loop() as loop:
        count = len(cluster.prometheus.requests)
        until(lambda: len(cluster.prometheus.requests), lambda now: now > count + 5)
        (line,) = loop.lines()
        assert line["said"].startswith("no answer from Prometheus, nothing is done: ")
        assert loop.metrics()["gpuform_health_prometheus_up"] == 0
        assert cluster.taints() == {}
        cluster.prometheus.invalid_answer = ""
        until(cluster.taints, {"fixed-a": "replace"}.__eq__)
        assert loop.lines()[1]["said"] == "Prometheus answers"
