"""What a change would do, before it costs money: ``gpuform preview`` and ``gpuform rehearse``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import (
    Acknowledge,
    AsJson,
    Offline,
    Only,
    OnlyStack,
    Operator,
    require_file,
    say,
    show,
    warn,
    working,
)
from gpuform.cli.target import Context, read_running
from infra.strict_yaml import short_path
from lab.toolchain import Toolchain

if TYPE_CHECKING:
    from gpuform.usage.rehearsal import Outcome
    from lab.rehearse.options import Options


def preview(
    stack: OnlyStack,
    offline: Offline = False,
    base: Annotated[
        str | None,
        typer.Option(help="Commit or folder of a project to compare with, offline; default: an empty stack."),
    ] = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option(help="Manifests of others (file or folder) that run on the base. May be repeated."),
    ] = None,
    summary: Annotated[
        Path | None, typer.Option(help="File for the summary in Markdown, as a comment on a pull request.")
    ] = None,
    as_json: AsJson = False,
    acknowledge: Acknowledge = None,
    only: Only = None,
) -> None:
    """Show what `up` would change, which pods it evicts, what it costs, and which policies it breaks.

    Exit code 1 if a check fails: a broken policy, a cost over the budget, or a loss that is not acknowledged;
    2 if the stack file is invalid. --summary has its errors.
    """
    from gpuform.clouds import CLOUDS, cloud_of
    from gpuform.reports import stack as texts
    from gpuform.reports.pull_request import render_comment
    from gpuform.stack.preview.run import Preview
    from lab.rehearse.plane import preview_base

    paths = Paths.here(stack)
    if summary is not None:
        require_file(summary, "--summary")
    if manifests and base is None:
        fact = "needs --base: other previews count the cluster's own pods, or begin with none"
        raise InputError("--manifests", fact, "give --base too, or leave it out")
    if only is not None and (offline or base is not None):
        raise InputError("--only", "is for live previews: others show the whole platform", "leave it out")
    accepted = tuple(acknowledge or ())
    rules = [cloud.preview for cloud in CLOUDS.values()]
    tools = Toolchain(paths)
    offline = offline or base is not None
    with working(f"previewing {stack}"):
        outcome = Preview(
            paths,
            tools,
            stack,
            rules,
            offline,
            base,
            accepted,
            warn,
            partial(preview_base, manifests=manifests or ()),
            lambda env: cloud_of(env).access,
            lambda env: cloud_of(env).preflight.refusals,
            only,
        ).run()
    if summary is not None:
        summary.write_text(render_comment(outcome), encoding="utf-8")
    if outcome.refused:
        raise outcome.refused
    show(as_json, outcome.to_json(), texts.preview_parts(outcome))
    if outcome.reasons:
        raise typer.Exit(1)


def run_rehearsal(
    paths: Paths, stack: str, options: Options, declared: Mapping[str, Any] | None = None
) -> Outcome:
    from lab.rehearse.run import Rehearsal

    try:
        with working(f"rehearsing {stack}"):
            return Rehearsal(paths, Toolchain(paths), stack, options, warn, declared).run()
    except KeyboardInterrupt:
        warn("interrupted and cleaned up; run the same command to start again")
        raise typer.Exit(130) from None


def rehearse(
    stack: OnlyStack,
    as_json: AsJson = False,
    fast: Annotated[bool, typer.Option("--fast", hidden=True)] = False,
    workloads: Annotated[
        Path | None, typer.Option(help="File with workloads: [...] to place instead of the stack's own.")
    ] = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option(help="Manifests of others (file or folder) to place beside them. May be repeated."),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Kubeconfig, or output of `kubectl get nodes,pods -A -o json`: begin with what runs there.",
        ),
    ] = None,
    context: Context = None,
    hash_names: Annotated[
        bool, typer.Option("--hash-names", help="Hash names of what runs there in all output.")
    ] = False,
    report: Annotated[
        Path | None, typer.Option(help="File for the HTML report; default: .gpuform/rehearse/STACK.html.")
    ] = None,
    short: Annotated[
        list[str] | None,
        typer.Option(help="MACHINE[:ZONE[:CAPACITY]] for which AWS has no capacity. May be repeated."),
    ] = None,
    interrupt_spot: Annotated[
        bool, typer.Option("--interrupt-spot", help="Interrupt a spot node, with AWS's two-minute notice.")
    ] = False,
    reservation_used: Annotated[
        list[str] | None,
        typer.Option(help="ID[=LEFT]: a reservation used by others; LEFT instances remain. May be repeated."),
    ] = None,
    qps: Annotated[
        str | None,
        typer.Option(help="RATE,RATE,...: requests per second of each scaled workload, one after another."),
    ] = None,
    operator: Annotated[Operator, typer.Option(help="Run NVIDIA's own GPU operator and NFD.")] = "simulated",
    timeout: Annotated[float, typer.Option(help="Maximum seconds of each wait.")] = 300.0,
    shrink: Annotated[
        bool, typer.Option("--shrink/--no-shrink", help="Remove half of the pods at the end.")
    ] = True,
) -> None:
    """Simulate a stack on this machine; show its nodes, their cost, and pods that stay pending.

    The platform runs on a control plane of its own, with simulated nodes; for AWS the real Karpenter launches
    them at a simulated AWS. Exit code 1 if a pod of the workloads stays pending, 2 for bad input.
    """
    from gpuform.reports import rehearsal
    from gpuform.reports.page import render_rehearsal
    from lab.rehearse import options, scaled
    from lab.rehearse.document import document
    from lab.rehearse.running import KINDS

    if fast:
        remedy = "leave it out: Karpenter's AWS controller launches the nodes, in about the same time"
        raise InputError("--fast", "was removed", remedy)
    paths = Paths.here(stack)
    page = report or paths.state / "rehearse" / f"{stack}.html"
    if report is not None:
        require_file(report, "--report")
    if not timeout > 0:  # also rejects nan
        raise InputError("--timeout", f"{timeout:g} is not a valid timeout", "give seconds, for example 300")
    requested = options.Options(
        workloads=workloads,
        manifests=tuple(manifests or ()),
        running=read_running(source, context, KINDS) if source else None,
        hash_names=hash_names,
        timeout_s=timeout,
        shrink=shrink,
        shortages=tuple(options.parse_shortage(text) for text in short or ()),
        reservations_left=tuple(options.parse_reservation_left(text) for text in reservation_used or ()),
        interrupt_spot=interrupt_spot,
        real_operator=operator == "real",
        qps=scaled.parse_qps(qps) if qps is not None else (),
    )
    outcome = run_rehearsal(paths, stack, requested)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(render_rehearsal(outcome), encoding="utf-8")
    show(as_json, document(outcome), rehearsal.rehearsal_parts(outcome))
    if not as_json:
        say(f"report: {short_path(page)}")
    if outcome.failed:
        raise typer.Exit(1)
