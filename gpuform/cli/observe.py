"""What a stack is and has now: ``gpuform status``, ``top``, ``report`` and ``health``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import (
    AsJson,
    Stack,
    cluster_failures,
    console,
    page_of,
    reach_cluster,
    require_file,
    say,
    show,
)
from gpuform.cli.target import Context, Kubeconfig, StackOrNone, Target, target_of
from gpuform.reports import tables
from gpuform.reports import top as trees
from gpuform.usage import health as cluster_health
from gpuform.usage import status as cluster_status
from infra.config import price_list
from infra.model.base.fields import listing
from infra.model.environment import Environment
from infra.model.platform.health import Health
from infra.plan import cost
from infra.plan.cost import Bill, to_document
from infra.strict_yaml import short_path
from lab.plane.layout import prometheus_port

if TYPE_CHECKING:
    from gpuform.usage.top.facts import Facts
    from gpuform.usage.top.view import View

WATCH_INTERVAL_S = 5.0
MOST_WAITING = 10
"""Of each queue, in the order in which they came."""


def status(
    stack: StackOrNone = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: AsJson = False,
) -> None:
    """Show pools, nodes, the GPU resources that they offer, the pods that use them, queues and cost."""
    target = target_of(stack, kubeconfig, context)
    env, paths = target.env, target.paths
    with target.reach() as access:
        current = target.status(target.fetch(*access))
    bill = cost.bill(env, price_list(env, paths.prices))
    known_bill = bill if target.kubeconfig is None else None  # a file declares its prices
    document = {**current.to_json(), "cost": to_document(bill)}
    show(as_json, document, _status_parts(env, current, known_bill))
    if as_json:
        return
    for line in (*tables.trouble_lines(current), *target.notes):
        say(line)
    if access[0] == paths.kubeconfig:
        say(_simulated_line(paths))
        if not env.is_simulated:
            say(tables.simulated_note(target.name, current))


def _status_parts(
    env: Environment, current: cluster_status.ClusterStatus, bill: Bill | None
) -> Iterator[RenderableType]:
    yield from (tables.pools_table(current), "", tables.pods_table(current), "")
    if current.queues:
        yield from (tables.build_table("Queues", tables.QUEUES, tables.queue_rows(current.queues)), "")
        if lines := list(tables.waiting_rows(current, MOST_WAITING)):
            yield from (tables.build_table("Waiting", tables.WAITING, lines), "")
    if bill and (not env.is_simulated or env.cost):
        yield from (tables.bill_table(None, bill), "")


def top(
    stack: StackOrNone = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Refresh every 5 seconds until Ctrl-C; with --json one line each.")
    ] = False,
    namespace: Annotated[str | None, typer.Option(help="Only pods of this namespace.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only nodes of this pool.")] = None,
    node: Annotated[str | None, typer.Option(help="Only this node.")] = None,
) -> None:
    """Show the requested and used GPUs of each node, GPU, slice and pod; the unit is GPUs.

    Without Prometheus it shows only what is requested, and says so.
    """
    from gpuform.usage.prometheus import connect
    from gpuform.usage.top.read import build_view, read_metrics

    target = target_of(stack, kubeconfig, context)
    env, paths = target.env, target.paths
    _require_known("pool", pool, [declared_pool.name for declared_pool in env.pools])
    with target.reach() as access, connect(env, paths, *access, prometheus_port) as prometheus:

        def read() -> View:
            current = target.status(target.fetch(*access))
            return build_view(env, current, *read_metrics(prometheus))

        try:
            shown = read()
            simulated = _simulated_line(paths) if shown.simulated else ""
            _require_known("node", node, [item.name for item in shown.nodes])  # once: a node may disappear
            on_screen = watch and not as_json and console.is_terminal
            screen = Live(console=console, screen=True, auto_refresh=False) if on_screen else nullcontext()
            with screen as live:
                while True:
                    view = shown.filtered(namespace, pool, node)
                    if as_json:
                        typer.echo(json.dumps(view.to_json(), indent=None if watch else 2))
                    elif live:
                        head = Text(
                            f"{target.name} at {time.strftime('%H:%M:%S')}; Ctrl-C ends", style="bold"
                        )
                        live.update(
                            tables.crop_to_height(console, [head, *_view_parts(view, simulated)]),
                            refresh=True,
                        )
                    else:
                        for part in _view_parts(view, simulated):
                            console.print(part, soft_wrap=isinstance(part, Text))
                    if not watch:
                        return
                    time.sleep(WATCH_INTERVAL_S)
                    shown = read()
        except KeyboardInterrupt:
            if not watch:
                raise  # Ctrl-C is how --watch ends


def _require_known(kind: str, name: str | None, known: list[str]) -> None:
    if name is not None and name not in known:
        raise InputError(f"--{kind}", f"unknown {kind} {name!r}", listing(known, name))


def _simulated_line(paths: Paths) -> str:
    from lab.plane import ControlPlane
    from lab.toolchain import Toolchain

    return tables.simulated_line(ControlPlane(paths, Toolchain(paths)).operator)


def _view_parts(current: View, simulated: str) -> Iterator[RenderableType]:
    yield trees.top_table(current)
    for line in [*trees.top_notes(current), *([simulated] if current.simulated else [])]:
        yield Text(line)


def report(
    stack: StackOrNone = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for the page; in .gpuform/report by default.")
    ] = None,
    as_json: AsJson = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page on loopback until Ctrl-C; it reloads by itself.")
    ] = False,
) -> None:
    """Write an HTML page with the pods on each GPU, utilization, alerts and cost.

    It needs no network and no script. Without Prometheus it shows only what is requested, and says so.
    """
    from gpuform.reports.page import REFRESH_S, page_server, render_page, save_page

    target = target_of(stack, kubeconfig, context)
    paths = target.paths

    def read() -> Facts:
        with target.reach() as access:
            return read_facts(target, *access)

    if serve:
        with page_server(lambda: render_page(read())) as server, suppress(KeyboardInterrupt):
            address = f"http://127.0.0.1:{server.server_port}/"
            say(f"report: {address}, new every {REFRESH_S} s; Ctrl-C ends")
            server.serve_forever()
        return
    file = output or (Path("gpuform-report.html") if kubeconfig else page_of(paths))
    require_file(file, "-o")
    report_facts = read()
    if file == page_of(paths):
        writable.make_state(paths.state)
    save_page(file, report_facts, paths.installation)
    why = report_facts.view.why
    show(as_json, {"file": str(file), "why": why}, ())
    lines = [*([f"requested only: {why}"] if why else []), f"report: {short_path(file)}"]
    for line in lines if not as_json else ():
        say(line)


def read_facts(target: Target, kubeconfig: Path, context: str | None) -> Facts:
    """What the page shows. Raises Failure if the cluster does not answer."""
    from gpuform.usage.prometheus import connect
    from gpuform.usage.top.facts import gather_facts

    env, paths = target.env, target.paths
    with connect(env, paths, kubeconfig, context, prometheus_port) as prometheus:
        objects = target.fetch(kubeconfig, context)
        prices = price_list(env, paths.prices)
        return gather_facts(env, target.name, objects, prometheus, prices, time.time())


health = typer.Typer(no_args_is_help=True, help="Show nodes with a broken GPU, and their repair tickets.")


@health.command(name="status")
def health_status(stack: Stack = "local", as_json: AsJson = False) -> None:
    """List the nodes that the health loop has closed, and say whether the loop has stopped."""
    from gpuform.reports import stack as texts

    declaration, recorded = _read_health(stack)
    document = {"mode": declaration.mode, **recorded.to_json()}
    show(as_json, document, [texts.health_table(recorded)] if recorded.nodes else [])
    for line in texts.health_lines(recorded, declaration.mode) if not as_json else ():
        say(line)


@health.command()
def tickets(
    stack: Stack = "local",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for one Markdown file per ticket.")
    ] = None,
) -> None:
    """Show the open tickets, or write them as files."""
    _, recorded = _read_health(stack)
    open_tickets = [ticket for ticket in recorded.tickets if ticket.open]
    if output is None:
        for ticket in open_tickets:
            typer.echo(ticket.files["ticket.md"])
    else:
        for file in cluster_health.write_tickets(open_tickets, output):
            say(f"wrote {short_path(file)}")
    if not open_tickets:
        say("no ticket is open")


def _read_health(stack: str) -> tuple[Health, cluster_health.HealthStatus]:
    paths = Paths.here(stack)
    env = load_environment(stack, paths)
    if env.health is None:
        raise InputError("health", f"stack {stack} does not declare it", "add health: {} to the stack file")
    with reach_cluster(env, paths, stack) as (kubeconfig, context), cluster_failures(stack, kubeconfig):
        return env.health, cluster_health.fetch_health(kubeconfig, context)
