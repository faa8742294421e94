"""The health loop on a real API server, with only the permissions of its own account."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from gpuform.checkout.paths import Paths
from infra import versions
from infra.incluster import cases
from infra.model.health import HEALTH
from lab.offline.charts import Charts
from tests.conftest import Plane
from tests.incluster.health_site import BURST, HealthSite, Loop, Stub, declared
from tests.waiting import until

pytestmark = pytest.mark.cluster

TWENTY = [f"fixed-{number:02}" for number in range(20)]
ILL = TWENTY[:8]


def played(plane: Plane, folder: Path) -> Iterator[HealthSite]:
    stub = Stub()
    yield HealthSite(plane, folder, stub)
    stub.close()
    plane.kubectl("delete", "namespace", HEALTH, "--ignore-not-found", "--wait=true")


@pytest.fixture(scope="module")
def made(control_plane: Plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HealthSite]:
    """A plane without the simulator, so that nodes keep offering what a test sets."""
    yield from played(control_plane, tmp_path_factory.mktemp("health"))


@pytest.fixture
def site(made: HealthSite) -> Iterator[HealthSite]:
    yield made
    made.forget()


@pytest.fixture
def with_karpenter(simulated_plane: Plane, tmp_path: Path) -> Iterator[HealthSite]:
    here, plane = Paths.here(), simulated_plane
    charts = Charts(here.root, here.cache, plane.paths.state / "charts")
    chart = charts.folder("karpenter-crd", versions.KARPENTER)
    helm = [str(plane.toolchain.path("helm")), "template", str(chart)]
    crds = subprocess.run(helm, check=True, capture_output=True, text=True).stdout
    plane.kubectl("apply", "--server-side", "-f", "-", input=crds)
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "-f", "-", input=crds)
    for site in played(plane, tmp_path):
        yield site
        site.kubectl("delete", "nodeclaims", "--all")
        site.forget()
    plane.kubectl("delete", "--wait=true", "-f", "-", input=crds)


def calm(loop: Loop, looks: int = 3) -> None:
    before = loop.done()
    loop.looked(looks)
    assert loop.done() == before


def test_eight_of_twenty_break_in_one_window_and_the_breaker_stops_at_four(site: HealthSite) -> None:
    site.install(declared(mode="cordon"))
    site.nodes(*TWENTY)
    site.prometheus.ill(*ILL)
    site.prometheus.ill("fixed-10", kind="application", xid="31")
    with site.loop() as loop:
        until(lambda: len(loop.done()), (8).__eq__)
        calm(loop)
        assert loop.done() == [
            *(("cordon", name, "done") for name in ILL[:4]),
            *(("withhold", name, "done") for name in ILL[4:]),
        ]
        assert site.taints() == dict.fromkeys(ILL[:4], "replace")
        figures = loop.metrics()
        assert figures["gpuform_health_breaker_open"] == 1
        assert figures["gpuform_health_budget"] == 4
        assert figures["gpuform_health_unhealthy_nodes"] == 4
        counted = (
            'gpuform_health_actions_total{node="fixed-00",class="replace",action="cordon",result="done"}'
        )
        assert figures[counted] == 1
    queries = [parse_qs(urlsplit(path).query)["query"] for path in site.prometheus.asked]
    assert {urlsplit(path).path for path in site.prometheus.asked} == {"/api/v1/query"}
    assert {query for (query,) in queries} == {cases.SERIES, cases.MEASURED}
    said = site.condition("fixed-00")
    assert (said["status"], said["reason"]) == ("True", "GpuNeedsReplacement")
    assert said["message"] == "GPU 0 (GPU-fixed-00): XID 79, class replace"
    assert site.events("fixed-00") == [("GpuNodeCordoned", said["message"])]
    ((reason, message),) = site.events("fixed-07")
    assert (reason, "4 actions in 3600 s, and the budget is 4" in message) == ("GpuActionWithheld", True)
    assert [reason for reason, _ in site.events("gpu-health-state", HEALTH)] == ["GpuHealthBreakerOpened"]
    assert not site.condition("fixed-10")

    with site.loop() as loop:  # a restart repeats no action, and leaves the breaker as it is
        loop.looked(3)
        assert loop.done() == []
        assert loop.metrics()["gpuform_health_breaker_open"] == 1
        where = ("-n", HEALTH, "configmap", "gpu-health-state")
        site.kubectl("annotate", *where, "gpuform.io/reset-breaker=looked at, a bad cable")
        until(lambda: len(site.taints()), (8).__eq__)
        calm(loop)
        assert loop.metrics()["gpuform_health_breaker_open"] == 0
    reasons = [reason for reason, _ in site.events("gpu-health-state", HEALTH)]
    assert sorted(reasons) == ["GpuHealthBreakerClosed", "GpuHealthBreakerOpened"]


@pytest.mark.nightly
def test_karpenters_node_is_given_back_and_another_gets_a_ticket(with_karpenter: HealthSite) -> None:
    site = with_karpenter
    site.install(declared(mode="replace", budget="100%"))
    site.nodes("burst-a", "burst-b", pool=BURST)
    site.nodes("fixed-a")
    for name in ("burst-a", "burst-b"):
        site.apply(node_claim(name))
        status = json.dumps({"status": {"nodeName": name, "providerID": f"kwok://{name}"}})
        site.kubectl("patch", "nodeclaim", name, "--subresource=status", "--type=merge", "-p", status)
    site.prometheus.ill("burst-a", "fixed-a")
    site.prometheus.ill("burst-b", kind="reset", xid="48")
    with site.loop(settle_s=1) as loop:  # a node that is new to the loop is not removed
        until(lambda: len(loop.done()), (4).__eq__)
        calm(loop)
    assert site.taints() == {"burst-a": "replace", "burst-b": "reset", "fixed-a": "replace"}
    left = site.kubectl("get", "nodeclaims", "-o", "name").split()
    assert left == ["nodeclaim.karpenter.sh/burst-b"]
    (given_back,) = [one for one in loop.lines() if one.get("action") == "replace"]
    assert given_back["why"].endswith("NodeClaim burst-a deleted")
    assert [reason for reason, _ in site.events("burst-a")] == ["GpuNodeCordoned", "GpuNodeReplaced"]
    assert site.ticket("burst-a") is None
    ticket = site.ticket("fixed-a")
    assert ticket
    assert ticket["metadata"]["labels"] == {"gpuform.io/ticket": "open"}
    known = json.loads(ticket["data"]["ticket.json"])
    assert (known["node"], known["pool"], known["class"]) == ("fixed-a", "fixed", "replace")
    assert "- GPU 0 (GPU-fixed-a): XID 79, class replace\n" in ticket["data"]["ticket.md"]
    reset = site.ticket("burst-b")
    assert reset
    assert "reboot the machine" in reset["data"]["ticket.md"]


@pytest.mark.nightly
def test_a_node_comes_back_once_it_is_repaired_and_shows_it(site: HealthSite) -> None:
    site.install(declared(mode="replace", budget="100%"))
    site.nodes("fixed-a", "fixed-b")
    site.boots("fixed-b", "before")
    site.prometheus.ill("fixed-a")
    site.prometheus.ill("fixed-b", kind="reset", xid="48")
    with site.loop(settle_s=2) as loop:
        until(site.taints, {"fixed-a": "replace", "fixed-b": "reset"}.__eq__)
        site.offers("fixed-a", "0")
        site.prometheus.faults = []  # the GPU is lost, and so are its series
        site.prometheus.measured.remove("fixed-a")
        loop.looked(4)
        assert site.taints() == {"fixed-a": "replace", "fixed-b": "reset"}
        site.kubectl("annotate", "node", "fixed-a", "gpuform.io/gpu-repaired=seated anew")
        site.boots("fixed-b", "after")
        until(site.taints, {"fixed-a": "replace"}.__eq__)
        until(lambda: ("wait", "fixed-a", "done") in loop.done(), bool)
        loop.looked(8)  # longer than the settling time
        told = [one.get("why") for one in loop.lines()]
        assert "not all of its GPUs are measured, so a fault could be missed" in told
        site.prometheus.measured.add("fixed-a")
        short = "it offers 0 of 1 nvidia.com/gpu"
        until(lambda: [one.get("why") for one in loop.lines()], lambda told: short in told)
        site.offers("fixed-a", "1")
        until(site.taints, {}.__eq__)
    node = site.node("fixed-a")
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["nvidia.com/gpu"]
    assert not [key for key in node["metadata"]["annotations"] if key.startswith("gpuform.io/gpu-")]
    assert site.condition("fixed-a")["status"] == "False"
    ticket = site.ticket("fixed-a")
    assert ticket
    assert ticket["metadata"]["labels"] == {"gpuform.io/ticket": "closed"}
    assert ticket["data"]["closed"].endswith("repaired: seated anew\n")
    assert ("GpuNodeReturned", "the node was rebooted; ticket gpu-ticket-fixed-b closed") in site.events(
        "fixed-b"
    )


@pytest.mark.nightly
def test_who_only_observes_may_not_touch_a_node_and_says_what_it_would_do(site: HealthSite) -> None:
    site.install(declared(mode="observe"))
    site.nodes("fixed-a")
    may = ("auth", "can-i", "--as", f"system:serviceaccount:{HEALTH}:{HEALTH}", "--quiet=false", "--list")
    rights = site.kubectl(*may)
    nodes = [line for line in rights.splitlines() if line.startswith("nodes")]
    assert [line.split("[")[-1] for line in nodes] == ["list]"]
    before = site.node("fixed-a")
    site.prometheus.ill("fixed-a")
    with site.loop() as loop:
        until(loop.done, [("observe", "fixed-a", "done")].__eq__)
        calm(loop)
    after = site.node("fixed-a")
    assert after["spec"] == before["spec"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]
    assert [reason for reason, _ in site.events("fixed-a")] == ["GpuFaultObserved"]


@pytest.mark.nightly
def test_without_an_answer_nothing_is_done_and_that_is_said_once(site: HealthSite) -> None:
    site.install(declared(mode="cordon"))
    site.nodes("fixed-a")
    site.prometheus.ill("fixed-a")
    site.prometheus.nonsense = "<html>a login page</html>"
    with site.loop() as loop:
        asked = len(site.prometheus.asked)
        until(lambda: len(site.prometheus.asked), lambda now: now > asked + 5)
        (said,) = loop.lines()
        assert said["said"].startswith("no answer from Prometheus, nothing is done: ")
        assert loop.metrics()["gpuform_health_prometheus_up"] == 0
        assert site.taints() == {}
        site.prometheus.nonsense = ""
        until(site.taints, {"fixed-a": "replace"}.__eq__)
        assert loop.lines()[1]["said"] == "Prometheus answers"


def node_claim(name: str) -> dict[str, object]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": BURST}
    asked = [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": name},
        "spec": {"nodeClassRef": reference, "requirements": asked},
    }
