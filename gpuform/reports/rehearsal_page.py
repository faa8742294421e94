"""The HTML page of a rehearsal: nodes, the pods on them, and cost over time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby

from gpuform.reports import html, rehearsal_loads, rehearsal_queues
from gpuform.reports import rehearsal as words
from gpuform.reports.rehearsal_timeline import timeline
from gpuform.usage.rehearsal import Cell, NodeDrawn, Outcome, PoolOutcome

MOST_NODES = 60
"""Boxes per pool; further nodes are only counted, and ``--json`` has all."""
_OTHERS = 6
_NARROW = 4
"""Cells that fit side by side into a box of the usual width."""


def page(outcome: Outcome) -> str:
    title = f"Rehearsal of {outcome.stack}"
    return html.page(title, _body(outcome, title))


def _body(outcome: Outcome, title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield f"<p>{escape(words.verdict(outcome))}</p>"
    yield f'<p class="dim">Simulated: {escape("; ".join(outcome.simulated))}.</p>'
    yield f'<p class="dim">Real: {escape("; ".join(outcome.real))}.</p>'
    if outcome.blind:
        yield f'<p class="dim">Not covered: {escape("; ".join(outcome.blind))}.</p>'
    yield from _waiting(outcome)
    yield "<h2>Placement</h2>"
    yield from _picture(outcome)
    yield "<h2>Nodes over time</h2>"
    yield timeline(outcome.timeline, outcome.seconds)
    yield '<p class="dim">Seconds since the control plane started; the shade differs while a node starts.</p>'
    yield "<h2>Pools</h2>"
    yield _pools(outcome)
    yield from rehearsal_queues.page(outcome)
    if outcome.played or outcome.refusals:
        yield "<h2>Scenario</h2>"
        yield html.paragraphs(text.plain for text in words.switched(outcome))
    yield from rehearsal_loads.page(outcome)
    if outcome.shrink:
        yield "<h2>After half of the pods are removed</h2>"
        yield html.paragraphs(words.shrunk(outcome.shrink))
    yield "<h2>How long it took</h2>"
    yield html.table(("step", "seconds"), ((one.name, f"{one.seconds:.1f}") for one in outcome.steps))
    yield f'<p class="dim">Prices: {escape(outcome.prices)}.</p>'


def _waiting(outcome: Outcome) -> Iterator[str]:
    if not outcome.failed:
        return
    yield '<div class="bad">'
    for part in words.pending(outcome):
        text = str(part)
        tag = "pre" if text.startswith("    ") else "p"
        if text:
            yield f"<{tag}>{escape(text.strip())}</{tag}>"
    yield "</div>"


def _picture(outcome: Outcome) -> Iterator[str]:
    colours = _colours(outcome.nodes)
    for name, group in groupby(outcome.nodes, key=lambda node: node.pool):
        nodes = list(group)
        pool = next(one for one in outcome.pools if one.name == name)
        yield f"<h3>{escape(name)} <span class='dim'>{escape(_of(pool))}</span></h3>"
        yield '<div class="nodes">'
        yield from (_box(node, colours) for node in nodes[:MOST_NODES])
        yield "</div>"
        if len(nodes) > MOST_NODES:
            yield f'<p class="dim">and {words.number(len(nodes) - MOST_NODES, "node")} more</p>'
    if not outcome.nodes:
        yield '<p class="dim">There were no nodes.</p>'


def _of(pool: PoolOutcome) -> str:
    """``2 nodes, 43.92 USD an hour, of which idle 12.00``."""
    nodes = words.number(pool.nodes, "node")
    if pool.usd_per_hour is None:
        return f"{nodes}, price unknown"
    said = f"{nodes}, {words.usd(pool.usd_per_hour)} an hour"
    return said if pool.idle_usd_per_hour is None else f"{said}, of which idle {pool.idle_usd_per_hour:,.2f}"


def _colours(nodes: Iterable[NodeDrawn]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for node in nodes:
        for row in node.gpus:
            for cell in row:
                if cell.pod:
                    found.setdefault((cell.namespace, cell.workload), len(found) % html.COLOURS)
    return found


def _box(node: NodeDrawn, colours: dict[tuple[str, str], int]) -> str:
    price = words.usd(node.usd_per_hour)
    paid = price if node.usd_per_hour is None else f"{price} an hour"
    facts = [node.machine or "own host", node.capacity, node.zone, paid]
    wide = " wide" if max((len(row) for row in node.gpus), default=0) > _NARROW else ""
    name = node.name.partition(".")[0]  # ip-10-64-64-4 of the whole name that AWS gives it
    rows = "".join(_gpu(index, row, colours) for index, row in enumerate(node.gpus))
    tags = [f'<span class="tag" title="{escape(pod)}">{escape(_short(pod))}</span>' for pod in node.others]
    if len(tags) > _OTHERS:
        tags = [*tags[:_OTHERS], f'<span class="tag">and {len(tags) - _OTHERS} more</span>']
    others = f'<div class="tags">{"".join(tags)}</div>' if tags else ""
    return (
        f'<div class="node{wide}"><div class="name" title="{escape(node.name)}">{escape(name)}</div>'
        f'<div class="sub">{escape(", ".join(filter(None, facts)))}</div>{rows}{others}</div>'
    )


def _gpu(index: int, row: tuple[Cell, ...], colours: dict[tuple[str, str], int]) -> str:
    return f'<div class="gpu"><b>GPU {index}</b>{"".join(_cell(cell, colours) for cell in row)}</div>'


def _cell(cell: Cell, colours: dict[tuple[str, str], int]) -> str:
    kind = escape(cell.resource.removeprefix("mig-") or "no GPU offered")
    if not cell.pod:
        return f'<span class="cell free" title="{kind}, free">free<small>{kind}</small></span>'
    whole = escape(f"{cell.namespace}/{cell.pod}")
    # The pods of a workload differ in the end of their names.
    last = cell.pod.rpartition("-")[2] if cell.pod != cell.workload else ""
    colour = colours[cell.namespace, cell.workload]
    return (
        f'<span class="cell w{colour}" title="{whole}: {kind}">{escape(cell.workload)}'
        f"<small>{escape(last)} {kind}</small></span>"
    )


def _short(pod: str) -> str:
    return pod.rpartition("/")[2]


def _pools(outcome: Outcome) -> str:
    rows = []
    for pool in outcome.pools:
        money = [
            "-" if not pool.nodes else words.usd(one) for one in (pool.usd_per_hour, pool.idle_usd_per_hour)
        ]
        used = ", ".join(words.amount(key, one) for key, one in pool.resources.items())
        rows.append((pool.name, ", ".join(words.machines(pool.machines)) or "none", used or "-", *money))
        if pool.in_vain:
            rows.append((pool.name, f"launched, but never used: {', '.join(pool.in_vain)}", "", "", ""))
    return html.table(("pool", "nodes", "in use", "an hour", "of which idle"), rows)
