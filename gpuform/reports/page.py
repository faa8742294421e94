"""The HTML pages of a stack and of a rehearsal.

One file each, no scripts, no requests, light or dark as the reader's system. ``gpuform report`` and
``make up`` write that of a stack. The same facts give the same bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import count_of
from gpuform.reports import picture, rehearsal, tables, top
from gpuform.reports.picture import Plot, Points
from gpuform.reports.tables import format_usd
from gpuform.usage.prometheus import Alert
from gpuform.usage.rehearsal import Cell, Outcome
from gpuform.usage.top.facts import Facts, Limit, PoolFacts
from gpuform.usage.top.measured import nodes_to_draw
from gpuform.usage.top.view import Gpu, Node, PodUse
from infra.model.base import namespaces
from infra.plan.cost import per_month
from infra.plan.rules.promql import POOL_REQUESTED, POOL_USED

MOST_ALERTS, MOST_PODS, MOST_TROUBLES, MOST_WAITING = 50, 200, 50, 50
MOST_IN_ALL = 300
"""Nodes of a stack's page; a browser still scrolls smoothly through that many."""
MOST_NODES = 60
"""Boxes per pool of a rehearsal; further nodes are only counted, and ``--json`` has all."""
_OUR_RUNBOOK = re.compile(r"docs/runbooks/\w+\.md")
LEGEND = (
    ("w0", "held by a pod"),
    ("free", "free"),
    ("hole", "in no slice"),
    ("broken", "broken"),
    ("bar", "utilization"),
    ("memory", "memory in use"),
)
"""Classes of the samples, and what they mean."""
COLOURS = 8
"""Classes w0 to w7 of the style."""
TEMPLATES = Path(__file__).with_name("templates")
Colours = dict[tuple[str, str], int]
"""Number of the style's class for each workload, by namespace and name; in order of appearance."""


def assign_colours(pods: Iterable[Cell | PodUse]) -> Colours:
    numbers: Colours = {}
    for pod in pods:
        numbers.setdefault((pod.namespace, pod.workload), len(numbers) % COLOURS)
    return numbers


def _colour(colours: Colours, pod: Cell | PodUse) -> str:
    return f"w{colours.get((pod.namespace, pod.workload), 0)}"


PAGES = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
PAGES.globals |= {"picture": picture, "tables": tables, "timeline": rehearsal, "top": top}
PAGES.globals |= {"count_of": count_of, "format_usd": format_usd, "per_month": per_month}
PAGES.filters |= {"px": "{:.1f}".format, "colour": _colour}


def _render(template: str, title: str, **values: Any) -> str:
    return PAGES.get_template(template).render(title=title, **values)


def save_page(file: Path, facts: Facts, root: Path) -> Path:
    """Write the page and create its folder; ``root`` is the checkout with the runbooks."""
    file.parent.mkdir(parents=True, exist_ok=True)
    checkout = os.path.relpath(root.resolve(), file.parent.resolve())
    file.write_text(render_page(facts, checkout), encoding="utf-8")
    return file


def render_page(facts: Facts, checkout: str = "") -> str:
    """The page as HTML; ``checkout`` is the path from the page's folder to the checkout with our runbooks."""
    nodes, history = facts.view.nodes, facts.history
    minutes = (history.until - history.since) / 60
    pods = [pod for node in nodes for gpu in node.gpus for pod in gpu.all_pods]
    pods += [pod for node in nodes for pod in node.unassigned]
    return _render(
        "report.html",
        f"gpuform: {facts.stack}",
        facts=facts,
        when=datetime.fromtimestamp(facts.at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        period=f"last {minutes:.0f} minutes" if 0 < minutes < 59 else "last hour",
        known=assign_colours(pods),
        legend=LEGEND,
        attributed=any(pod.attributed for pod in pods),
        groups=list(_pool_groups(facts)),
        alerts=[(alert, _runbook(alert, checkout)) for alert in (*facts.alerts, *facts.pending)],
        troubles=tables.trouble_lines(facts.status),
        waiting=list(tables.waiting_rows(facts.status, MOST_WAITING)),
        limits=[(limit.node_pool, limit.resource, *_limit_cells(limit)) for limit in facts.limits],
        pods=[
            (
                pod.namespace,
                pod.name,
                tables.format_counts(pod.gpu_requests) or "no GPU",
                pod.node or "-",
                pod.phase,
            )
            for pod in facts.status.pods
            if pod.namespace not in namespaces.SYSTEM
        ],
        bill=[(item, now) for item, _, now in tables.bill_rows(None, facts.bill)],
        total=tables.bill_total(facts.bill),
        most={"alerts": MOST_ALERTS, "pods": MOST_PODS, "troubles": MOST_TROUBLES},
        gpu_line=_gpu_line,
        pool_line=_pool_line,
        figures=_figures,
    )


def _runbook(alert: Alert, checkout: str) -> tuple[str, bool]:
    """The address, and whether it is a link: only http(s) and our own, since anyone may have written it."""
    url = alert.annotations.get("runbook_url", "")
    if _OUR_RUNBOOK.fullmatch(url) and checkout:
        return f"{checkout}/{url}", True
    return url, urlsplit(url).scheme in ("http", "https")


def _pool_groups(facts: Facts) -> Iterator[tuple[PoolFacts, Sequence[Node], int]]:
    """Pools with GPUs, the nodes drawn of each, and how many more it has."""
    by_pool, left = {pool.status.name: pool for pool in facts.pools}, MOST_IN_ALL
    for group in nodes_to_draw(facts.view):
        pool, shown = by_pool[group[0].pool], group[:left]
        left -= len(shown)
        yield pool, shown, len(pool.nodes) - len(shown)


def _gpu_line(facts: Facts, node: Node, gpu: Gpu) -> tuple[Points, Plot, str]:
    """Utilisation over time, and the same in words."""
    points, label = facts.history.gpus.get((node.name, gpu.index), ()), ""
    if points:
        least, most = (100 * pick(value for _, value in points) for pick in (min, max))
        label = f"busy: {100 * points[-1][1]:.0f} % now, {least:.0f} to {most:.0f} % before"
    return points, Plot(facts.history.since, facts.history.until, 1.0, 72, 18), label


def _pool_line(facts: Facts, pool: PoolFacts) -> tuple[Points, Plot, str, Points]:
    history, name = facts.history, pool.status.name
    used, requested = (history.pools.get((name, series), ()) for series in (POOL_USED, POOL_REQUESTED))
    label = f"{name}: {used[-1][1]:.2f} GPUs used now" if used else ""
    if requested:
        label += f", {requested[-1][1]:.2f} requested (the thin line)"
    return used if pool.gpus else (), Plot(history.since, history.until, pool.gpus, 140, 26), label, requested


def _figures(gpu: Gpu, measured: bool) -> list[str]:
    """``51 %``, ``5.8/15.0 GiB``, ``61 W``, and the temperature, which fits only into the tooltip."""
    use = gpu.use
    busy = "" if use.util is None else top.percent(use)
    watts = "" if use.power_watts is None else f"{use.power_watts:.0f} W"
    degrees = "" if use.celsius is None else f"{use.celsius:.0f} \u00b0C"
    figures = [text for text in (busy, top.memory_text(use).replace(" of ", "/"), watts, degrees) if text]
    return figures or ([top.UNMEASURED] if measured else [])


def _limit_cells(limit: Limit) -> tuple[str, str, str]:
    unit = 2**30 if limit.resource == "memory" else 1
    share = f"{100 * limit.bought / limit.maximum:.0f} %" if limit.maximum else "-"
    return f"{limit.bought / unit:,.4g}", f"{limit.maximum / unit:,.4g}{' GiB' if unit > 1 else ''}", share


def render_rehearsal(outcome: Outcome) -> str:
    last = rehearsal.last_second(outcome.timeline, outcome.seconds)
    pools = {pool.name: pool for pool in outcome.pools}
    groups = [(pools[name], list(nodes)) for name, nodes in groupby(outcome.nodes, lambda node: node.pool)]
    cells = (cell for node in outcome.nodes for row in node.gpus for cell in row if cell.pod)
    return _render(
        "rehearsal.html",
        f"Rehearsal of {outcome.stack}",
        outcome=outcome,
        words=rehearsal,
        known=assign_colours(cells),
        groups=groups,
        pools=_rehearsed_pools(outcome),
        last=last,
        most=MOST_NODES,
    )


def _rehearsed_pools(outcome: Outcome) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for pool in outcome.pools:
        money = [
            "-" if not pool.nodes else format_usd(usd) for usd in (pool.usd_per_hour, pool.idle_usd_per_hour)
        ]
        used = ", ".join(rehearsal.format_usage(key, use) for key, use in pool.resources.items())
        machines = ", ".join(rehearsal.format_machines(pool.machines))
        rows.append((pool.name, machines or "none", used or "-", *money))
        if pool.in_vain:
            rows.append((pool.name, f"launched, but never used: {', '.join(pool.in_vain)}", "", "", ""))
    return rows


REFRESH_S = 15  # as often as Prometheus scrapes by default; a browser reloads the page by itself
LOOPBACK = ("127.0.0.1", "localhost")
PORT = 8790  # another is taken if it is in use


def page_server(render: Callable[[], str]) -> HTTPServer:
    """A server for ``serve_forever``; a Failure of ``render`` becomes a page that is reloaded, too."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # Other sites must not read it by a name that they resolve to this address.
            if self.path != "/" or self.headers.get("Host", "").partition(":")[0] not in LOOPBACK:
                self.send_error(404)
                return
            try:
                status, kind, body = 200, "html", render()
            except Failure as failure:
                status, kind, body = 503, "plain", f"failed: {failure}\n"
            self.send_response(status)
            self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
            self.send_header("Refresh", str(REFRESH_S))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Requests are not printed."""

    try:
        return HTTPServer((LOOPBACK[0], PORT), Page)
    except OSError:
        return HTTPServer((LOOPBACK[0], 0), Page)
