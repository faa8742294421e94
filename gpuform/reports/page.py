"""The report as one HTML page: placement of pods, use and cost.

Written by ``gpuform report`` and at the end of ``make up``. The same facts give the same bytes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from gpuform.reports import bills, html, page_nodes, tables, top
from gpuform.reports.rehearsal import number, usd
from gpuform.reports.sparkline import sparkline
from gpuform.usage.prometheus import Alert
from gpuform.usage.top.facts import Facts, Limit, PoolFacts
from infra.model.checks import SYSTEM_NAMESPACES
from infra.plan.bill import document
from infra.plan.rules.promql import POOL_REQUESTED, POOL_USED

MOST_ALERTS, MOST_PODS, MOST_TROUBLES, MOST_WAITING = 50, 200, 50, 50
HOW_TO_READ = (
    "Each picture is one GPU; its width is the GPU's memory, and the width of a slice is its memory slices. "
    "Small squares are compute slices. Parts side by side are shares of one GPU."
)
MEASURED = (
    "The bars below a picture: current utilization, and memory in use. The line beside a GPU's name: "
    "utilization over time."
)


def write(folder: Path, facts: Facts, root: Path) -> Path:
    """Write ``status.json`` and ``index.html`` into ``folder`` and return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {**facts.status.to_json(), "cost": document(facts.bill)}
    (folder / "status.json").write_text(json.dumps(found, indent=2) + "\n")
    return save(folder / "index.html", facts, root)


def save(file: Path, facts: Facts, root: Path) -> Path:
    """Write the page and create its folder; ``root`` is the checkout with the runbooks."""
    file.parent.mkdir(parents=True, exist_ok=True)
    checkout = os.path.relpath(root.resolve(), file.parent.resolve())
    file.write_text(page(facts, checkout), encoding="utf-8")
    return file


def page(facts: Facts, checkout: str = "") -> str:
    """The page as HTML; ``checkout`` is the path from the page's folder to the checkout with our runbooks."""
    title = f"gpuform: {facts.stack}"
    return html.page(title, _body(facts, title, checkout))


def _body(facts: Facts, title: str, checkout: str) -> Iterator[str]:
    when = datetime.fromtimestamp(facts.at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    yield f"<h1>{escape(title)}</h1>"
    yield f'<p class="dim">State at {when}.</p>'
    if facts.view.simulated:
        real = " Prometheus is real; its measurements come from the simulator's model."
        said = f"S{tables.SIMULATED[1:]}{real if facts.view.measured else ''}"
        yield f'<p class="note">{escape(said)}</p>'
    if facts.view.why:
        yield f'<p class="note">Shows only what is requested: {escape(facts.view.why)}.</p>'
    yield f'<div class="tiles">{"".join(_tiles(facts))}</div>'
    yield from _alerts(facts, checkout)
    yield from _troubles(facts)
    yield "<h2>Placement</h2>"
    read = f"{HOW_TO_READ} {MEASURED}" if facts.view.measured else HOW_TO_READ
    yield f'<p class="dim">{escape(read)}</p>'
    if any(pod.attributed for node in facts.view.nodes for pod in node.everyone):
        yield f'<p class="dim">{escape(top.ATTRIBUTED)}.</p>'
    yield from page_nodes.nodes(facts)
    yield "<h2>Pools</h2>"
    yield _pools(facts)
    yield f'<p class="dim">{escape(_idle(facts))}</p>'
    yield from _limits(facts)
    yield from _queues(facts)
    yield "<h2>Pods</h2>"
    yield from _pods(facts)
    yield "<h2>Cost</h2>"
    yield from _bill(facts)


def _tiles(facts: Facts) -> Iterator[str]:
    gpus = sum(pool.gpus for pool in facts.pools)
    asked = sum(pool.requested for pool in facts.pools)
    yield _tile("requested", f"{top.amount(asked)} of {number(gpus, 'GPU')}", asked / gpus if gpus else None)
    busy = [pool.busy for pool in facts.pools if pool.busy is not None]
    if busy:
        yield _tile("busy", f"{top.amount(sum(busy))} of {number(gpus, 'GPU')}", sum(busy) / max(gpus, 1))
    known = [pool.money.paid for pool in facts.pools if pool.money.paid is not None]
    unknown = sum(pool.money.paid is None for pool in facts.pools)
    if known:
        more = f"and {number(unknown, 'pool')} without a price" if unknown else "all pools"
        yield _tile("cost an hour", usd(sum(known)), None, more)
        idle = sum(pool.money.idle or 0.0 for pool in facts.pools)
        yield _tile("of which idle", usd(idle), idle / sum(known) if sum(known) else None)
    if facts.view.measured:
        pending = f"{facts.pending} pending" if facts.pending else "none pending"
        count = len(facts.alerts)
        yield _tile("alerts", f"{count} firing", None, pending, "alarm" if count else "")


def _tile(what: str, much: str, part: float | None, below: str = "", kind: str = "") -> str:
    bar = ""
    if part is not None:
        bar = f'<div class="meter"><div style="width:{100 * min(1.0, part):.0f}%"></div></div>'
        below = below or f"{100 * part:.0f} %"
    return (
        f'<div class="tile"><div class="dim">{escape(what)}</div>'
        f'<div class="much {kind}">{escape(much)}</div>{bar}<div class="dim">{escape(below)}</div></div>'
    )


def _alerts(facts: Facts, checkout: str) -> Iterator[str]:
    if not facts.view.measured:
        return
    yield "<h2>Alerts</h2>"
    if not facts.alerts:
        yield '<p class="dim">No alert is firing.</p>'
        return
    shown = "".join(_alert(alert, checkout) for alert in facts.alerts[:MOST_ALERTS])
    yield f'<ul class="alerts">{shown}</ul>'
    if (more := len(facts.alerts) - MOST_ALERTS) > 0:
        yield f'<p class="dim">and {more} more</p>'


def _alert(alert: Alert, checkout: str) -> str:
    severity = alert.labels.get("severity", "")
    said = alert.annotations.get("summary") or alert.annotations.get("description") or ""
    since = f"{severity}, since {alert.since[:16].replace('T', ' ')} UTC"
    told = f"<b>{escape(alert.name)}</b> {escape(said)}"
    parts = " · ".join(
        part for part in (f'<span class="dim">{escape(since)}</span>', _runbook(alert, checkout)) if part
    )
    return f'<li class="{escape(severity)}">{told}<br>{parts}</li>'


def _runbook(alert: Alert, checkout: str) -> str:
    """A link only for http(s) and our own runbooks: anyone may have written the annotation."""
    url = alert.annotations.get("runbook_url", "")
    if OUR_RUNBOOK.fullmatch(url) and checkout:
        url = f"{checkout}/{url}"
    elif urlsplit(url).scheme not in ("http", "https"):
        return f'<span class="dim">runbook: {escape(url)}</span>' if url else ""
    return f'<a href="{escape(url, quote=True)}" rel="noreferrer">runbook</a>'


OUR_RUNBOOK = re.compile(r"docs/runbooks/\w+\.md")


def _troubles(facts: Facts) -> Iterator[str]:
    found = tables.troubles(facts.status)
    if found:
        yield f'<div class="bad">{html.paragraphs(found[:MOST_TROUBLES])}'
        if (more := len(found) - MOST_TROUBLES) > 0:
            yield f"<p>and {more} more</p>"
        yield "</div>"


def _pools(facts: Facts) -> str:
    head = ["pool", "machine", "nodes", "each offers", "GPUs requested"]
    if facts.view.measured:
        head += ["busy", _since(facts)]
    head += ["USD an hour", "of which idle", *(["requested, not used"] if facts.view.measured else [])]
    top_row = "".join(f"<th>{escape(one)}</th>" for one in head)
    rows = "".join(f"<tr>{''.join(_row(facts, pool))}</tr>" for pool in facts.pools)
    return f'<div class="scroll" tabindex="0"><table><tr>{top_row}</tr>{rows}</table></div>'


def _since(facts: Facts) -> str:
    minutes = (facts.history.until - facts.history.since) / 60
    return f"last {minutes:.0f} minutes" if 0 < minutes < 59 else "last hour"


def _row(facts: Facts, pool: PoolFacts) -> Iterator[str]:
    status = pool.status
    offers = " or ".join(dict.fromkeys(tables.counts(node.allocatable) or "no GPU" for node in status.nodes))
    for text in (status.name, status.machine, tables.nodes(status), offers or "-"):
        yield f"<td>{escape(text)}</td>"
    yield f"<td>{top.amount(pool.requested)} of {pool.gpus}</td>" if pool.gpus else "<td>-</td>"
    if facts.view.measured:
        yield f"<td>{'-' if pool.busy is None else top.amount(pool.busy)}</td>"
        yield f"<td>{_spark(facts, pool)}</td>"
    money = (pool.money.paid, pool.money.idle, *((pool.money.unused,) if facts.view.measured else ()))
    for place, amount in enumerate(money):
        text = "-" if not status.nodes or (place == 2 and not pool.gpus) else _money(amount)
        yield f"<td>{text}</td>"


def _money(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"


def _spark(facts: Facts, pool: PoolFacts) -> str:
    history, name = facts.history, pool.status.name
    used, asked = (history.pools.get((name, series), ()) for series in (POOL_USED, POOL_REQUESTED))
    if not used or not pool.gpus:
        return "-"
    label = f"{name}: {used[-1][1]:.2f} GPUs used now"
    if asked:
        label += f", {asked[-1][1]:.2f} requested (the thin line)"
    return sparkline(used, (history.since, history.until), pool.gpus, label, (140, 26), asked)


def _idle(facts: Facts) -> str:
    said = "Idle: capacity that no pod requests; by GPUs on nodes with GPUs, else by cores or memory."
    return f"{said} The line: GPUs used, and requested (thin)." if facts.view.measured else said


def _limits(facts: Facts) -> Iterator[str]:
    if facts.limits:
        yield "<h2>Karpenter limits</h2>"
        rows = ((one.node_pool, one.resource, *_bought(one)) for one in facts.limits)
        yield html.table(("NodePool", "resource", "used", "limit", "share"), rows)


def _queues(facts: Facts) -> Iterator[str]:
    if facts.status.queues:
        yield "<h2>Queues</h2>"
        yield html.table(tables.QUEUES, tables.queues(facts.status.queues))
        if lines := list(tables.waiting(facts.status, MOST_WAITING)):
            yield html.table(tables.WAITING, lines)


def _bought(limit: Limit) -> tuple[str, str, str]:
    unit = 2**30 if limit.resource == "memory" else 1
    of = f"{100 * limit.has / limit.most:.0f} %" if limit.most else "-"
    return f"{limit.has / unit:,.4g}", f"{limit.most / unit:,.4g}{' GiB' if unit > 1 else ''}", of


def _pods(facts: Facts) -> Iterator[str]:
    pods = [pod for pod in facts.status.pods if pod.namespace not in SYSTEM_NAMESPACES]
    rows = (
        (pod.namespace, pod.name, tables.counts(pod.requests) or "no GPU", pod.node or "-", pod.phase)
        for pod in pods[:MOST_PODS]
    )
    yield html.table(("namespace", "pod", "requests", "node", "phase"), rows)
    if (more := len(pods) - MOST_PODS) > 0:
        yield f'<p class="dim">and {more} more; `gpuform status --json` has all</p>'


def _bill(facts: Facts) -> Iterator[str]:
    rows = [(what, now) for what, _, now in bills.rows(None, facts.bill)]
    yield html.table(
        ("item", f"USD a month; {facts.bill.price_source}"), [*rows, ("all", bills.all_of(facts.bill))]
    )
    if facts.view.simulated:
        said = "What such machines would cost; simulated ones cost nothing."
        yield f'<p class="dim">{said}</p>'
