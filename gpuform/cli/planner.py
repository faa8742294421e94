"""``gpuform plan``: how to share which GPUs, and how many, for a stack's workloads or a file of demands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import AsJson, reach_cluster, say, show, stack_of_new_file, warn
from gpuform.cli.target import Context, read_running
from infra.config import KEY, price_list
from infra.model.base.labels import ENVIRONMENT
from infra.model.base.prices import PriceList
from infra.model.environment import Environment
from infra.strict_yaml import short_path

if TYPE_CHECKING:
    from gpuform.reports.rehearsal import Part
    from infra.planner.need import Need


def plan(
    stack: Annotated[
        str, typer.Argument(metavar="[STACK]", help="Stack with the pools, and the workloads if it has any.")
    ] = "",
    file: Annotated[
        Path | None,
        typer.Option("--demands", metavar="FILE", help="Demands as YAML or csv; see docs/howto/plan.md."),
    ] = None,
    manifests: Annotated[
        list[Path] | None,
        typer.Option("-f", "--file", help="Manifests or folders with more workloads of the stack."),
    ] = None,
    measured: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Count what the pods took in this time, as 14d, by the stack's Prometheus."
        ),
    ] = "",
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            help="Kubeconfig, or output of `kubectl get -o json`: count the pods and nodes that are there.",
        ),
    ] = None,
    context: Context = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print every alternative of each demand, with the reason.")
    ] = False,
    limit: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Seconds for the search; then the best answer so far.")
    ] = 10.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            help="Stack file to write, with the planned pools: Pulumi.STACK.yaml; if that takes several "
            "updates, Pulumi.STACK-1.yaml and so on before it.",
        ),
    ] = None,
    rehearse: Annotated[
        bool,
        typer.Option("--rehearse", help="Rehearse the stack with the planned pools, as `gpuform rehearse`."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute the cheapest way to share GPUs for all demands, and prove how much less is impossible.

    Prints pools for the stack file, or writes a new one. Asks no cloud, and a cluster only with --measured
    and --from. Exit code 1 if a pod stays pending with --rehearse.
    """
    from gpuform.reports import plan as report
    from infra.planner import demands
    from infra.planner import explain as reasons
    from infra.planner.candidates import candidates_of
    from infra.planner.proposal import plan_accepted
    from infra.planner.steps import sequence

    if not stack and file is None and source is None:
        remedy = "name a stack, or give --demands or --from"
        raise InputError("STACK", "is missing, and so is what to count", remedy)
    if context and not source:
        raise InputError("--context", "is given without --from", "give both")
    copied = "-o" if output else "--rehearse" if rehearse else ""
    if copied and not stack and (rehearse or not source):
        raise InputError(copied, "is given without a stack", "name the stack of which the new one is a copy")
    planned = stack_of_new_file(output) if output else ""
    paths = Paths.here(stack) if stack else Paths.anywhere()
    env = load_environment(stack, paths) if stack else None
    given = demands.read(file) if file else None
    nodes: Mapping[str, Sequence[str]] = {}
    running: list[Need | str] = []
    if source:
        from gpuform.adopt.objects import well_formed

        with well_formed(str(source)):
            env, nodes, running = _running(env, source, context, planned or "adopted")
    others, left = _of_manifests(env, manifests or (), running)
    prices = price_list(env, paths.prices) if env else PriceList()
    candidates = candidates_of(env, given.machines if given else (), prices, nodes)
    folder = file.parent if file else Path()
    needs = demands.needs_of(env, given.demands if given else (), folder, others)
    if measured:
        known = {demand.name for demand in given.demands} if given else set()
        needs, unmeasured = _measured(env, paths, stack, needs, known, measured)
        left += unmeasured
    found, proposal = plan_accepted(env, needs, candidates, limit)
    before = demands.needs_of(env, (), folder, others)
    steps = sequence(env, before, proposal, nodes) if env and proposal.environment else []
    why = list(reasons.alternatives(found)) if explain else []
    claimed = demands.unplanned(env) if env else ()
    left += [f"{name} is left out: its GPUs are allocated by claim" for name in claimed]
    if copied and not proposal.environment:
        fact = f"gpuform would refuse these pools: {proposal.refusal}"
        raise InputError(copied, fact, f"leave {copied} out")
    files: list[Path] = []
    if output:
        numbers = range(1, len(steps))
        files = [*(output.with_name(f"{output.stem}-{number}.yaml") for number in numbers), output]
        for path in files[:-1]:
            stack_of_new_file(path)
        documents = [*(step.environment for step in steps[:-1]), proposal.environment]
        for path, declared in zip(files, documents, strict=True):
            path.write_text(_yaml({"config": {KEY: dict(declared)}}), encoding="utf-8")
    if rehearse:
        names = [need.name for need in found.needs if not need.now]
        left += [f"{name} is not rehearsed: the stack has no such pods" for name in names]
    answer = report.Answer(found, proposal, steps, why, left)
    if not as_json:
        _print(report.parts(answer))
        if not output:
            say("\n" + _yaml({"pools": list(proposal.pools)}))
        _print(report.closing(answer))
        for line in report.notes(answer):
            warn(line)
    if output and not as_json:
        say(f"wrote {', '.join(str(short_path(path)) for path in files)}; next: gpuform rehearse {planned}")
    outcome, rehearsal = None, None
    if rehearse:
        from gpuform.cli.preview import run_rehearsal
        from lab.rehearse.document import document
        from lab.rehearse.options import Options

        options = Options(manifests=tuple(manifests or ()), shrink=False)
        outcome = run_rehearsal(paths, stack, options, proposal.environment)
        rehearsal = document(outcome)
    if as_json:
        show(True, report.to_document(answer, rehearsal), ())
    elif outcome:
        _print(("", *report.rehearsed(proposal, outcome)))
    if outcome and outcome.failed:
        raise typer.Exit(1)


def _print(parts: Iterable[Part]) -> None:
    for part in parts:
        if isinstance(part, str):  # not as markup, of which brackets are a part
            say(part)
        else:
            show(False, None, [part])


def _yaml(content: dict[str, Any]) -> str:
    return yaml.safe_dump(content, sort_keys=False, default_flow_style=None, width=76, allow_unicode=True)


def _running(
    env: Environment | None, source: Path, context: str | None, name: str
) -> tuple[Environment, dict[str, tuple[str, ...]], list[Need | str]]:
    """The stack, or the cluster as `gpuform adopt` declares it; nodes by pool; needs of pods of others.

    Of an existing cluster the nodes are those that run, the busiest first.
    """
    from gpuform.adopt import declare, objects
    from gpuform.cli.adopt import declared_cluster
    from gpuform.kubernetes.kinds import NODE, POD
    from gpuform.usage.demand import running_needs
    from gpuform.usage.nodes import parse_pod

    found = read_running(source, context, (*objects.KINDS, POD))
    if POD in found.denied:
        raise InputError("--from", "its credentials may not list pods", "use others, or give a dump")
    if not (pods := found.all(POD)):
        raise InputError("--from", "no pod runs there", "dump `nodes,pods` of all namespaces, with -A")
    if env is None:
        cluster = declared_cluster(source if objects.is_kubeconfig(source) else None, context)
        adopted = declare.adopt(found, cluster, name)
        env = adopted.environment
    else:
        pods = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(ENVIRONMENT) != env.name]
    load: Counter[str] = Counter()
    for pod in found.all(POD):
        record = parse_pod(pod, env.name)
        load[record.node] += sum(record.gpu_requests.values())
    nodes: dict[str, list[str]] = {}
    for node in found.all(NODE):
        if pool := env.selecting_pool(node["metadata"].get("labels") or {}):
            nodes.setdefault(pool.name, []).append(node["metadata"]["name"])
    by_load = {pool: tuple(sorted(names, key=lambda one: -load[one])) for pool, names in nodes.items()}
    return env, by_load, list(running_needs(env, pods))


def _of_manifests(
    env: Environment | None, files: Sequence[Path], found: Sequence[Need | str]
) -> tuple[list[Need], list[str]]:
    """Needs of the manifests' pods and of those ``found``, and what is left out of them."""
    from gpuform.manifests import documents, pods
    from gpuform.manifests.needs import needs

    if files:
        if env is None:
            raise InputError("STACK", "is missing, and -f is given", "name the stack on which they run")
        everything = documents.parse_all(documents.read_files(files))
        found = [*found, *needs(env, (pod for one in everything for pod in pods.find(one)), "default")]
    return [one for one in found if not isinstance(one, str)], [one for one in found if isinstance(one, str)]


def _measured(
    env: Environment | None,
    paths: Paths,
    stack: str,
    needs: Sequence[Need],
    known: Collection[str],
    window: str,
) -> tuple[tuple[Need, ...], list[str]]:
    """The needs as measured, but for those that a demand is ``known`` of; and which were not measured."""
    from gpuform.usage.demand import with_measured
    from gpuform.usage.prometheus import connect
    from lab.plane.layout import prometheus_port

    if env is None or not stack:
        raise InputError("STACK", "is missing, and --measured is given", "name the stack that runs")
    if not re.fullmatch("[1-9][0-9]{0,4}[mhdw]", window):
        raise InputError("--measured", f"{window!r} is no time", "give it as 90m, 12h, 14d or 4w")
    asked = [need for need in needs if not {need.name, need.name.rpartition("/")[2]} & {*known}]
    with (
        reach_cluster(env, paths, stack) as access,
        connect(env, paths, *access, prometheus_port) as prometheus,
    ):
        found = list(with_measured(prometheus, asked, window))
    by_name = {need.name: need for need, _ in found}
    notes = [
        f"{need.name}: not measured in {window}, counted as declared" for need, seen in found if not seen
    ]
    return tuple(by_name.get(need.name, need) for need in needs), notes
