"""``gpuform top``: which pods request and use which GPUs now."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import AsJson, answering, console, reach_cluster, say
from infra.model.base import listing

if TYPE_CHECKING:
    from gpuform.usage.prometheus import Prometheus
    from gpuform.usage.top.view import View
    from infra.model.environment import Environment

EVERY_S = 5.0


def top(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")] = "local",
    as_json: AsJson = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Repeat every 5 seconds until Ctrl-C; with --json one line each.")
    ] = False,
    namespace: Annotated[str | None, typer.Option(help="Only pods of this namespace.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only nodes of this pool.")] = None,
    node: Annotated[str | None, typer.Option(help="Only this node.")] = None,
) -> None:
    """Show nodes, GPUs, slices and pods: what is requested, and what is used.

    Without Prometheus it shows what is requested, and says so.
    """
    from gpuform.checkout.stacks import declared
    from gpuform.usage.prometheus import reach
    from lab.plane.layout import prometheus_port

    paths = Paths.here()
    env = declared(stack, paths)
    _known("pool", pool, [one.name for one in env.pools])
    with (
        reach_cluster(env, paths, stack) as (kubeconfig, context),
        reach(env, paths, kubeconfig, context, prometheus_port) as prometheus,
    ):
        cluster = Cluster(env, stack, kubeconfig, context)
        try:
            found = cluster.look(prometheus)
            _known("node", node, [one.name for one in found.nodes])  # once: a watched node may disappear
            while True:
                _show(found.only(namespace, pool, node), as_json, watch)
                if not watch:
                    return
                time.sleep(EVERY_S)
                found = cluster.look(prometheus)
        except KeyboardInterrupt:
            if not watch:
                raise  # Ctrl-C is how --watch ends


def _known(kind: str, name: str | None, known: list[str]) -> None:
    if name is not None and name not in known:
        raise InputError(f"--{kind}", f"unknown {kind} {name!r}", listing(known, name))


@dataclass(frozen=True)
class Cluster:
    """A stack's cluster, and how to reach it."""

    env: Environment
    stack: str
    kubeconfig: Path
    context: str | None

    def look(self, prometheus: Prometheus) -> View:
        """Read the cluster and Prometheus once. Raises Failure if the cluster does not answer."""
        from gpuform.usage.cluster_objects import fetch
        from gpuform.usage.top.read import measure, view

        with answering(self.stack, self.kubeconfig):
            objects = fetch(self.env, self.kubeconfig, self.context)
        return view(self.env, objects, *measure(prometheus))


def _show(current: View, as_json: bool, watch: bool) -> None:
    from gpuform.reports import tables, top

    if as_json:
        typer.echo(json.dumps(current.to_json(), indent=None if watch else 2))
        return
    if watch:
        console.clear()
    console.print(top.table(current))
    for line in top.notes(current):
        say(line)
    if current.simulated:
        say(tables.SIMULATED)
