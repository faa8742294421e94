"""What a rehearsal shows: the table, the documented JSON, and the page with its diagrams."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from gpuform.reports import rehearsal
from gpuform.reports.page import MOST_NODES
from gpuform.reports.page import render_rehearsal as page
from gpuform.reports.picture import LETTER, shorten
from gpuform.reports.rehearsal import LEFT, MOST_ROWS, WIDTH, cost_steps
from gpuform.usage.rehearsal import NodeTimeline
from lab.rehearse.document import document
from tests.lab.rehearse.outcomes import NODE, outcome
from tests.reports.markup import Tags, macro

pytestmark = pytest.mark.unit

PRINTED = (
    "2x p4d.24xlarge, on-demand, us-west-2a",
    "mig-1g.5gb 2 of 14 43.92 11.00",
    "1x p5e.48xlarge, on-demand - unknown unknown",
    "mig: launched, but no pod of a workload ever ran there: i-0123456789abcdef0",
    "job science/train: 1 of 2 pods succeeded",
    "arts mig mig-1g.5gb 2 2 0 0 1.50",
    "Job arts/again created 60.0, admitted 61.0, evicted 70.0 (Preempted), admitted 80.0, finished 90.0",
    "Job arts/still<b> created 60.0, waits",
    "no capacity: p4d.24xlarge, on-demand, in us-west-2b; requested 3 times",
    "before 2 3 43.90 after 1 2 21.96",
    f"{NODE} (p4d.24xlarge, 21.96 USD an hour) was removed: no pod was left on it",
    "400 serving/triton 7, wanted 8 4; bought 3x g4dn.xlarge 1.58 91",
    "triton: first additional pod on a new node, in seconds since the load changed: asked 15, created 15",
    "400 requests per second: triton has 7 pods: the autoscaler tolerates 10 %",
    "shortened, so durations are not those of the cluster: triton's cooldown is 10 s instead of 300 s",
    "steps: control plane 5.0 s, pods placed 17.2 s",
    "simulated: AWS. Real: Karpenter.",
    "pending: science/train-<b> (pool mig): Karpenter launches no node: at its limit karpenter: no",
    "lab: 2 of 3 pods placed, 3 nodes, 43.92 USD an hour, without h200 (price unknown)",
)


def test_the_table_says_what_is_bought_idle_in_vain_pending_and_gone() -> None:
    file = io.StringIO()
    Console(width=200, file=file).print(*rehearsal.rehearsal_parts(outcome()), sep="\n")
    printed = " ".join(file.getvalue().split())
    for text in PRINTED:
        assert text in printed
    assert printed.endswith(PRINTED[-1]), "what matters comes last"


def test_the_page_begins_with_the_month_the_idle_part_and_the_budget() -> None:
    text = " ".join(page(replace(outcome(), budget=20000.0)).split())
    tiles = re.findall(r'<div class="dim">([^<]+)</div><div class="much ([a-z]*)">([^<]+)</div>', text)
    assert tiles == [
        ("pods placed", "alarm", "2 of 3"),
        ("a month", "", "32,058 USD"),
        ("of which idle", "", "8,030 USD"),
        ("budget a month", "alarm", "20,000 USD"),
    ]
    assert "budget" not in page(outcome())
    assert text.index("What is simulated") > text.index("How long it took")


def test_the_json_has_the_documented_keys() -> None:
    result = json.loads(json.dumps(document(outcome())))
    documented = (Path(__file__).parents[3] / "docs/howto/rehearse.md").read_text()
    block = json.loads(re.findall(r"```json\n(.*?)```", documented, re.DOTALL)[0])

    def shape(value: object) -> object:
        if isinstance(value, dict):
            return {key: shape(one) for key, one in value.items()}
        return [shape(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None

    result["pools"] = result["pools"][1:]
    for free in (result, block):  # keys are names of processes or resources
        free["rss_bytes"] = free["pods"]["pending"][0]["asks"] = {}
        for pool in free["pools"]:
            pool["resources"] = {"any": next(iter(pool["resources"].values()), None)}
    assert shape(result) == shape(block)
    assert (result["failed"], result["usd_per_hour"], result["unpriced"]) == (True, None, ["h200"])


def test_a_rehearsal_fails_by_what_is_pending_or_a_trouble() -> None:
    assert not outcome(pending=()).failed
    assert replace(outcome(pending=()), troubles=("node a offers nothing",)).failed


def test_the_page_is_whole_fetches_nothing_and_shows_text_as_text() -> None:
    text, tags = page(outcome()), Tags()
    tags.feed(text)
    assert (tags.open, tags.fetched) == ([], [])
    for absent in ("url(", "@import", "train-<b>"):
        assert absent not in text
    for present in ("train-&lt;b&gt;", "<td>4; bought 3x g4dn.xlarge</td>", "prefers-color-scheme: dark"):
        assert present in text


def test_the_page_draws_each_time_that_a_workload_waits_in_a_queue() -> None:
    text = page(outcome())
    for title in (
        "again: 60 s to 70 s, admitted at 61 s",
        "again: 70 s to 90 s, admitted at 80 s",
        "still&lt;b&gt;: 60 s to 125 s, never admitted",
    ):
        assert f"<title>arts: {title}</title>" in text
    assert "Queues" not in page(replace(outcome(), queues=()))


def test_the_picture_has_a_cell_for_each_slice_and_names_its_pod() -> None:
    text, tags = page(outcome()), Tags()
    tags.feed(text)
    boxes = [item for item in tags.classes if item.split()[:1] == ["node"]]
    assert boxes == ["node", "node wide", "node wide"]
    assert tags.classes.count("gpu") == 1 + 2 * 8
    assert sum(item.startswith("cell") for item in tags.classes) == 1 + 2 * 8 * 7
    assert tags.classes.count("cell free") == 2 * 8 * 6
    assert 'title="science/train-abc-12345: 1g.5gb">train<small>12345 1g.5gb</small>' in text


def test_too_many_nodes_are_counted() -> None:
    text = page(outcome(nodes=MOST_NODES + 3))
    assert text.count('class="node wide"') == MOST_NODES
    assert "and 3 nodes more" in text


@pytest.mark.parametrize("nodes", [1, 7, 75])
def test_bars_and_texts_of_the_timeline_do_not_overlap(nodes: int) -> None:
    result = outcome(nodes=nodes)
    svg = macro("nodes_over_time", result.timeline, result.seconds).partition("</svg>")[0] + "</svg>"
    picture = ElementTree.fromstring(svg)
    height = float(picture.get("height", "0"))
    rows: dict[float, list[tuple[float, float]]] = {}
    for bar in picture.iter("rect"):
        left, top, wide = (float(bar.get(key, "0")) for key in ("x", "y", "width"))
        assert LEFT <= left <= left + wide <= WIDTH - 15.9
        assert top + float(bar.get("height", "0")) <= height - 22
        rows.setdefault(top, []).append((left, left + wide))
    assert len(rows) == min(nodes + 1, MOST_ROWS)
    assert all(below - above >= 15 for above, below in pairwise(sorted(rows)))
    for (_, waits), (begins, _) in rows.values():
        assert waits == pytest.approx(begins, abs=0.11), "it is there from when it is ready"
    for text in picture.iter("text"):
        output, at = text.text or "", float(text.get("x", "0"))
        wide = len(output) * LETTER
        if text.get("text-anchor") == "end":
            assert at - wide >= 120, "the price stands beside the axis, and not on the words before it"
        else:
            middle = text.get("text-anchor") == "middle"
            assert at + (wide / 2 if middle else wide) <= (WIDTH if middle else LEFT), output


def line(name: str, usd: float | None, begin: float, ready: float | None, end: float | None) -> NodeTimeline:
    return NodeTimeline(name, "p", "m", usd, begin, ready, end, end is None)


def test_the_cost_of_all_nodes_rises_and_falls() -> None:
    lines = (
        line("a", 2.0, 1.0, 1.0, None),
        line("b", 0.5, 10.0, 12.0, 20.0),
        line("c", None, 5.0, 6.0, None),
    )
    assert cost_steps(lines) == [(0.0, 0.0), (1.0, 2.0), (10.0, 2.5), (20.0, 2.0)]


def test_a_long_name_is_cut_to_its_room() -> None:
    assert shorten("short", 200) == "short"
    assert shorten("x" * 100, 20 * LETTER) == "x" * 19 + "\u2026"


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ((), "<p>There were no nodes.</p>"),
        ((line("n", 21.96, 5.0, None, 9.0),), "5 s to 9 s, never ready"),
        ((line("n", 21.96, 5.0, 6.0, 9.0),), "5 s to 9 s, ready at 6 s"),
    ],
)
def test_the_timeline_says_when_a_node_was_ready(lines: tuple[NodeTimeline, ...], text: str) -> None:
    assert text in macro("nodes_over_time", lines, 10.0)
