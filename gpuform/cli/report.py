"""``gpuform report``: a stack as it is now, as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import answering, reach_cluster, say, short_path

PAGES = {"local": "index.html"}
"""`make up` writes the same page."""


def report(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")] = "local",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="File for the page; in .gpuform/report by default.")
    ] = None,
) -> None:
    """Write one HTML page: the pods on each GPU, what is used, what it costs, what is wrong.

    It needs no network and no script. Without Prometheus it shows only what is requested, and says so.
    """
    import time

    from gpuform.checkout.stacks import declared
    from gpuform.reports.page import save
    from gpuform.usage.cluster_objects import fetch
    from gpuform.usage.prometheus import reach
    from gpuform.usage.top.facts import gather
    from infra.config import price_list
    from lab.plane.layout import prometheus_port

    paths = Paths.here()
    env = declared(stack, paths)
    file = output or paths.state / "report" / PAGES.get(stack, f"{stack}.html")
    remedy = "name a writable file with -o"
    if file.is_dir():
        raise InputError(str(file), "is a folder", remedy)
    writable.require(file.parent, remedy)
    with (
        reach_cluster(env, paths, stack) as (kubeconfig, context),
        reach(env, paths, kubeconfig, context, prometheus_port) as prometheus,
    ):
        with answering(stack, kubeconfig):
            objects = fetch(env, kubeconfig, context)
        found = gather(env, stack, objects, prometheus, price_list(env), time.time())
    save(file, found, paths.root)
    if found.view.why:
        say(f"requested only: {found.view.why}")
    say(f"report: {short_path(file)}")
