"""The report's section on nodes: a box per node, with pictures of its GPUs and the pods on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from gpuform.reports import picture, tables, top
from gpuform.reports.rehearsal import number, usd
from gpuform.reports.sparkline import sparkline
from gpuform.usage.top.facts import Facts, PoolFacts
from gpuform.usage.top.history import drawn
from gpuform.usage.top.view import Gpu, Node, PodUse

MOST_PODS = 8
"""Pods listed below a GPU; its picture shows all."""
MOST_IN_ALL = 300
"""Boxes of the page; a browser still scrolls smoothly through that many."""


def nodes(facts: Facts) -> Iterator[str]:
    """The nodes by pool; nodes beyond ``MOST_IN_ALL`` are only counted."""
    every = [gpu for node in facts.view.nodes for gpu in node.gpus]
    known = picture.colours(every, (pod for node in facts.view.nodes for pod in node.loose))
    by_pool = {pool.status.name: pool for pool in facts.pools}
    left = MOST_IN_ALL
    if not facts.view.nodes:
        yield '<p class="dim">There are no nodes with GPUs.</p>'
    yield '<div class="pools">'
    for group in drawn(facts.view):
        pool = by_pool[group[0].pool]
        yield f'<section><h3>{escape(pool.status.name)} <span class="dim">{escape(_of(pool))}</span></h3>'
        shown = group[:left]
        left -= len(shown)
        if shown:
            yield f'<div class="nodes">{"".join(_node(facts, node, known) for node in shown)}</div>'
        if more := len(pool.nodes) - len(shown):
            yield f'<p class="dim">and {number(more, "node")} more</p>'
        yield "</section>"
    yield "</div>"


def _of(pool: PoolFacts) -> str:
    """``2 nodes (1 to 4), time_slicing: 4 per GPU, 1 of 2 GPUs requested``."""
    how = ": ".join(filter(None, (pool.status.sharing, pool.status.detail)))
    asked = f"{top.amount(pool.requested)} of {number(pool.gpus, 'GPU')} requested"
    bounds = f" ({tables.reach(pool.status.bounds)})" if pool.status.bounds else ""
    return f"{number(len(pool.nodes), 'node')}{bounds}, {how}, {asked}"


def _node(facts: Facts, node: Node, known: picture.Colours) -> str:
    prices: Mapping[str, float | None] = facts.prices_of or {}
    price = prices.get(node.name)
    paid = "price unknown" if price is None else f"{usd(price)} an hour"
    model = node.gpus[0].model if node.gpus else ""
    sub = ", ".join(filter(None, (node.machine, model, paid)))
    name = node.name.partition(".")[0]
    wrong = ", ".join(filter(None, ("" if node.ready else "not ready", node.closed)))
    alarm = f' <span class="alarm">{escape(wrong)}</span>' if wrong else ""
    inside = "".join(_gpu(facts, node, gpu, known) for gpu in node.gpus)
    if node.loose:
        inside += '<p class="sub">on one of these GPUs (unknown which):</p>'
        inside += _pods(node.loose, known)
    return (
        f'<div class="node"><div class="name" title="{escape(node.name)}">{escape(name)}{alarm}</div>'
        f'<div class="sub">{escape(sub)}</div>{inside}</div>'
    )


def _gpu(facts: Facts, node: Node, gpu: Gpu, known: picture.Colours) -> str:
    points = facts.history.gpus.get((node.name, gpu.index), ())
    label = ""
    if points:
        least, most = (100 * pick(value for _, value in points) for pick in (min, max))
        label = f"busy: {100 * points[-1][1]:.0f} % now, {least:.0f} to {most:.0f} % before"
    line = sparkline(points, (facts.history.since, facts.history.until), 1.0, label, (72, 18))
    numbers = _numbers(gpu)
    if facts.view.measured and not numbers:
        numbers = [top.UNMEASURED]
    shown, whole = (escape(", ".join(found)) for found in (numbers[:3], numbers))
    head = f'<span>GPU {gpu.index}</span><span class="dim" title="{whole}">{shown}</span>{line}'
    pods = _pods(tuple(gpu.everyone), known)
    sick = f'<div class="sub alarm">{escape(", ".join(map(str, gpu.faults)))}</div>' if gpu.faults else ""
    return f'<div class="head">{head}</div>{sick}{picture.picture(gpu, known)}{pods}'


def _numbers(gpu: Gpu) -> list[str]:
    """``51 %``, ``5.8/15.0 GiB``, ``61 W``, and the temperature, which fits only into the tooltip."""
    use = gpu.use
    busy = "" if use.util is None else top.percent(use)
    watts = "" if use.power_watts is None else f"{use.power_watts:.0f} W"
    degrees = "" if use.celsius is None else f"{use.celsius:.0f} \u00b0C"
    return [text for text in (busy, top.memory(use).replace(" of ", "/"), watts, degrees) if text]


def _pods(pods: Sequence[PodUse], known: picture.Colours) -> str:
    if not pods:
        return ""
    items = [_pod(pod, known) for pod in pods[:MOST_PODS]]
    if more := len(pods) - len(items):
        items.append(f'<li class="dim">and {more} more</li>')
    return f'<ul class="pods">{"".join(items)}</ul>'


def _pod(pod: PodUse, known: picture.Colours) -> str:
    colour = known.get((pod.namespace, pod.workload), 0)
    used = "" if pod.used is None else f", uses {top.used_by(pod)}"
    what = f"{top.amount(pod.requested)} GPU{used}"
    name = escape(f"{pod.namespace}/{pod.name}")
    return f'<li><span class="swatch w{colour}"></span>{name} <span class="dim">{escape(what)}</span></li>'
