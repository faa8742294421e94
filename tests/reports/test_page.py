"""The report: complete, reproducible, escaped, and bounded for a cluster of any size."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest

from gpuform.checkout.errors import Failure
from gpuform.reports.page import MOST_ALERTS, MOST_PODS, assign_colours, page_server, render_page
from gpuform.reports.picture import Plot
from gpuform.usage.cluster_objects import LiveObjects
from gpuform.usage.prometheus import Alert, Prometheus, Unavailable
from gpuform.usage.top.facts import gather_facts
from gpuform.usage.top.view import Gpu, PodUse, Slice, Use
from infra.config import price_list
from tests.reports.everything import AT, ENV, facts
from tests.reports.markup import Tags, macro
from tests.usage.top.played import Played, gpu_series, gpu_uuid, node, pod

pytestmark = pytest.mark.unit


def page_of(*objects: dict[str, Any]) -> str:
    """The page of these nodes, without Prometheus's measurements."""
    asked = Prometheus(Played(), "")
    return render_page(gather_facts(ENV, "x", LiveObjects(objects), asked, price_list(ENV), AT))


def test_the_page_is_whole_loads_nothing_and_is_the_same_every_time() -> None:
    text, found = render_page(facts()), Tags()
    assert text == render_page(facts())
    found.feed(text)
    assert (found.open, found.fetched) == ([], ["https://example.org/a?b&c"]), "only links"
    for svg in re.findall(r"<svg.*?</svg>", text):
        ElementTree.fromstring(svg)
    shown = (
        "State at 2026-11-22 02:00 UTC.",
        "Simulated: nodes, GPU operator components;",
        "train-&lt;b&gt;&amp;&#34;quot&#39;",
        "&lt;i&gt;said&lt;/i&gt;",
        '<a href="https://example.org/a?b&amp;c" rel="noreferrer">runbook</a>',
        '<span class="dim">runbook: javascript:alert(1)</span>',
        "2 firing",
        "1 pending",
        '<li class="info"><b>GpuIdle</b> <br>\n<span class="dim">warning, pending, since 2026-11-22 01:30',
        "<td>burst</td><td>cpu</td><td>48</td><td>100</td><td>48 %</td>",
        "<td>burst</td><td>memory</td><td>32</td><td>64 GiB</td><td>50 %</td>",
        '<div class="sub alarm">gpu lost (replace)</div>',
        'aria-label="GPU 3: unhealthy"',
        '<rect class="free broken"',
        '<i class="sample broken"></i>broken',
    )
    absent = ("<b>&", "url(", "@import", "<script", "onload", 'javascript:alert(1)"', "Watchdog")
    assert [one for one in shown if one not in text] == []
    assert [one for one in absent if one in text] == []
    assert text.index("GpuXid") < text.index("GpuInfo"), "the worst first"
    unmeasured = '<span class="dim" title="not measured">not measured</span></div>'
    assert text.partition("GPU 3</span>")[2].startswith(unmeasured)
    assert "imulated" not in page_of(node("n", "a100-whole"))


@pytest.mark.parametrize(
    ("url", "checkout", "link"),
    [
        ("docs/runbooks/GpuXid.md", "../..", '<a href="../../docs/runbooks/GpuXid.md"'),
        ("docs/runbooks/GpuXid.md", "", '<span class="dim">runbook: docs/runbooks/GpuXid.md</span>'),
        ("docs/runbooks/../../x.md", "..", '<span class="dim">runbook: docs/runbooks/../../x.md</span>'),
        ("//example.org/x", "..", '<span class="dim">runbook: //example.org/x</span>'),
        ("", "..", "since"),
    ],
)
def test_our_own_runbooks_are_links_into_the_checkout(url: str, checkout: str, link: str) -> None:
    alert = Alert("A", "firing", {"severity": "info"}, {"summary": "s", "runbook_url": url}, "2026")
    text = render_page(replace(facts(), alerts=(alert,)), checkout)
    assert link in text
    assert text.count("runbook</a>") == link.startswith("<a")


def test_without_prometheus_it_says_so_and_has_what_is_asked_for() -> None:
    away = Prometheus(Unavailable(Failure("Prometheus", "does not answer", "look")), "")
    text = render_page(facts(away))
    assert "Shows only what is requested: Prometheus: does not answer; look." in text
    assert "3.85 of 8 GPUs" in text
    for word in ("Alerts", "busy", 'class="spark"', 'class="track"'):
        assert word not in text


def test_a_served_page_is_rendered_anew_on_loopback_and_reloads() -> None:
    texts = iter(["first", "second"])

    def render() -> str:
        if text := next(texts, ""):
            return text
        raise Failure("cluster of a", "cannot be reached", "start it")

    with page_server(render) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            assert server.server_address[0] == "127.0.0.1"
            url = f"http://127.0.0.1:{server.server_port}/"
            first, second, third = (httpx.get(url) for _ in range(3))
            assert (first.text, second.text) == ("first", "second")
            message = "failed: cluster of a: cannot be reached; start it\n"
            assert (third.status_code, third.text) == (503, message)
            assert {one.headers["refresh"] for one in (first, second, third)} == {"15"}
            assert httpx.get(url, headers={"Host": "example.org"}).status_code == 404
            assert httpx.get(f"{url}other").status_code == 404
        finally:
            server.shutdown()
            thread.join()


def test_pools_cost_money_and_so_does_what_is_requested_and_not_used() -> None:
    found = {pool.status.name: pool.money for pool in facts().pools}
    assert found["t4-shared"].paid == pytest.approx(2 * 0.526)
    assert found["t4-shared"].idle == pytest.approx(0.526 * (0.5 + 1.0))
    assert found["t4-shared"].unused == 0.0, "what is asked for there is used"
    assert found["a100-whole"].paid is None
    one = node("n", "t4-shared", gpus=1, machine="g4dn.xlarge")
    objects = LiveObjects((one,), (pod("a/b", "n", (gpu_uuid("n", 0, 0),), gpu_shared=1),))
    asked = Prometheus(Played(gpu_series("n", 0, 0.05, 1, 15)), "")
    money = gather_facts(ENV, "test", objects, asked, price_list(ENV), AT).pools[0].money
    assert money.unused == pytest.approx(0.526 * 0.2)


@pytest.mark.parametrize(("kind", "told"), [("xid", "XID 79"), ("thermal", "thermal")])
def test_an_injected_fault_is_listed_before_any_alert(kind: str, told: str) -> None:
    broken = node("n", "a100-whole")
    fault = [{"kind": kind, "gpu": 1, "since": "2026-11-22T01:59:58+00:00", "xid": 79}]
    broken["metadata"]["annotations"] = {"simulator.gpuform.io/faults": json.dumps(fault)}
    clear = "`gpuform simulate fault n --clear` clears it"
    assert f"<p>n: GPU 1 has {told}: {clear}</p>" in page_of(broken)
    assert "Injected faults" not in page_of(node("n", "a100-whole"))


def test_a_pod_that_waits_is_told_with_its_reason() -> None:
    current = facts()
    waits = replace(current.status.pods[-1], name="waits", reason="Unschedulable: <none>")
    text = render_page(replace(current, status=replace(current.status, pods=(waits,))))
    assert "/waits: Unschedulable: &lt;none&gt;" in text


@pytest.mark.parametrize("nodes", [200, 1000])
def test_a_large_cluster_is_drawn_in_part_and_that_is_said(nodes: int) -> None:
    many = tuple(node(f"n{index:04}", "a100-whole", gpus=8) for index in range(nodes))
    names = [one["metadata"]["name"] for one in many]
    pods = tuple(pod(f"a/{name}", name, (gpu_uuid(name, 0),), gpu=1) for name in names)
    asked = Played()
    for one in many[:100]:
        asked.series += gpu_series(one["metadata"]["name"], 0, 0.5, 1, 40)
    labels = ({"alertname": f"Gpu{index}", "severity": "info"} for index in range(MOST_ALERTS + 7))
    asked.alerts = [{"labels": own, "state": "firing", "activeAt": ""} for own in labels]
    current = gather_facts(ENV, "big", LiveObjects(many, pods), Prometheus(asked, ""), price_list(ENV), AT)
    text = render_page(current)
    assert text.count('class="node"') == 60
    assert f"and {nodes - 60} nodes more" in text
    assert "and 7 more" in text
    assert (f"and {nodes - MOST_PODS} more" in text) == (nodes > MOST_PODS)
    assert len(text) < 1_500_000
    assert len(asked.asked) < 10, "a question for each pool, none for each node"


def test_nodes_that_are_not_ready_or_take_no_pods_are_drawn_first() -> None:
    many = [node(f"n{index:03}", "a100-whole", gpus=1) for index in range(100)]
    many[99]["status"]["conditions"][0]["status"] = "False"
    box = re.compile(r'<div class="node"><div class="name" title="(\w+)">')
    assert box.findall(page_of(*many))[:2] == ["n099", "n000"]
    sick = {"key": "gpuform.io/gpu-unhealthy", "value": "<replace>", "effect": "NoSchedule"}
    text = page_of(many[0], {**many[1], "spec": {"taints": [sick]}})
    assert box.findall(text) == ["n001", "n000"]
    assert 'title="n001">n001 <span class="alarm">out of use: &lt;replace&gt;</span></div>' in text


def test_boxes_of_all_pools_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuform.reports.page.MOST_IN_ALL", 3)
    text = render_page(facts())
    assert text.count('class="node"') == 3
    assert "and 1 node more" in text


def test_the_picture_of_a_cut_gpu_is_to_scale() -> None:
    """Three of eight memory slices in the middle are free: 2g.10gb begins at 2, 1g.5gb at 6."""
    slices = (
        Slice("2g.10gb", "3", 2, 2, 2, 2 / 7, 1, Use(util=0.5, memory_used=1, memory_total=2)),
        Slice("1g.5gb", "9", 6, 1, 1, 1 / 7, 1, Use(util=0.0)),
    )
    gpu = Gpu(0, "u", "A100", 1, 7, 8, Use(), slices)
    svg = ElementTree.fromstring(macro("gpu", gpu, {}))
    kinds: dict[str, list[tuple[float, float]]] = {}
    for rect in svg.iter("rect"):
        place = float(rect.get("x", "")), float(rect.get("width", ""))
        kinds.setdefault(rect.get("class", ""), []).append(place)
    assert kinds["free"] == [(81.0, 78.0), (241.0, 38.0)]
    assert len(kinds["hole"]) == 5
    assert len(kinds["unit"]) == 3
    assert kinds["bar"] == [(81.0, 39.0), (241.0, 0.0)]
    assert kinds["memory"] == [(81.0, 39.0)]
    assert svg.get("aria-label") == "GPU 0: 2g.10gb free; 1g.5gb free"


def test_shares_are_parts_of_a_gpu_and_texts_without_room_are_left_out() -> None:
    pods = tuple(PodUse("ns", f"pod-{n}", f"long-name-{n}", "nvidia.com/gpu", 1, 1 / 16) for n in range(3))
    gpu = Gpu(0, "u", "T4", 16, 0, 0, Use(), (), pods)
    svg = ElementTree.fromstring(macro("gpu", gpu, assign_colours(gpu.all_pods)))
    rects = [rect.get("class") for rect in svg.iter("rect")]
    assert rects == ["w0", "w1", "w2", *["free"] * 13]
    assert {text.text for text in svg.iter("text")} <= set()
    assert svg.find("g/title").text == "ns/pod-0: 1/16"  # type: ignore[union-attr]


def test_more_pods_than_shares_are_drawn_nevertheless() -> None:
    """A pool that was changed from 4 shares to 2 keeps its pods until they end."""
    pods = tuple(PodUse("ns", f"pod-{n}", f"w{n}", "nvidia.com/gpu.shared", 1, 0.5) for n in range(4))
    svg = macro("gpu", Gpu(0, "u", "T4", 2, 0, 0, Use(), (), pods), {})
    assert svg.count("<rect") == 4


def test_a_line_is_broken_where_nothing_was_measured() -> None:
    points = [(float(at), 0.5) for at in (0, 10, 20, 100, 110)]
    svg = macro("spark", points, Plot(0, 110, 1.0, 96, 20), "a <b>")
    assert svg.count("<polyline") == 2
    assert "<b>" not in svg
    assert macro("spark", [], Plot(0, 1, 1, 96, 20), "") == ""
    assert "nan" not in macro("spark", [(0.0, 5.0)], Plot(0, 0, 0, 96, 20), "one point, no span, no top")
