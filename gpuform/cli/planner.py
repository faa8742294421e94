"""``gpuform plan``: how to share which GPUs, and how many, for a stack's workloads or a file of demands."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from gpuform.checkout.errors import InputError
from gpuform.checkout.listing import count_of
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import AsJson, reach_cluster, say, short_path, show, stack_of_new_file, warn
from gpuform.cli.target import Context, read_running
from gpuform.reports.tables import build_table
from infra.config import KEY, price_list
from infra.model.base.labels import ENVIRONMENT
from infra.model.base.prices import HOURS_PER_MONTH, PriceList
from infra.model.environment import Environment

if TYPE_CHECKING:
    from gpuform.usage.rehearsal import Outcome
    from infra.planner.explain import Alternative
    from infra.planner.need import Need
    from infra.planner.plan import Group, Plan
    from infra.planner.proposal import Proposal
    from infra.planner.steps import Step

_CELL = 6
"""Letters for each memory slice in a picture: eight of them and a pool's name fit into 80 columns."""


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

    Prints pools for the stack file, or writes a new one. Asks no cloud, and a cluster only with --measured.
    Exit code 1 if a pod stays pending with --rehearse.
    """
    from gpuform.adopt.objects import well_formed
    from gpuform.cli.preview import run_rehearsal
    from infra.planner import demands
    from infra.planner import explain as reasons
    from infra.planner import plan as planner
    from infra.planner.candidates import candidates_of
    from infra.planner.proposal import propose
    from infra.planner.steps import sequence
    from lab.rehearse.document import document

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
    found = planner.make_plan(env, needs, candidates, limit)
    proposal = propose(found, env)
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
        for path in files:
            stack_of_new_file(path)
        documents = [*(step.environment for step in steps[:-1]), proposal.environment]
        for path, declared in zip(files, documents, strict=True):
            path.write_text(_yaml({"config": {KEY: dict(declared)}}), encoding="utf-8")
    outcome = None
    if rehearse:
        from lab.rehearse.options import Options

        options = Options(manifests=tuple(manifests or ()), shrink=False)
        outcome = run_rehearsal(paths, stack, options, proposal.environment)
        left += [
            f"{need.name} is not rehearsed: the stack has no such pods"
            for need in found.needs
            if not need.now
        ]
    status = int(outcome is not None and outcome.failed)
    if as_json:
        rehearsed = outcome and document(outcome)
        show(True, _document(found, proposal, steps, why, left) | {"rehearsed": rehearsed}, ())
        raise typer.Exit(status)
    show(False, None, [_pools(proposal), "", _placements(found, proposal), ""])
    for line in _pictures(proposal):
        say(line)
    if explain:
        show(False, None, ["", _alternatives(why)])
    if not output:
        say("\n" + _yaml({"pools": list(proposal.pools)}))
    for line in _summary(found):
        say(line)
    if len(steps) > 1 or any(step.waiting for step in steps):
        show(False, None, ["", _steps(steps)])
    for line in (*_relabelled(steps), *_notes(proposal, left)):
        warn(line)
    if output:
        say(f"wrote {', '.join(str(short_path(path)) for path in files)}; next: gpuform rehearse {planned}")
    if outcome:
        show(False, None, ["", *_rehearsed(proposal, outcome)])
    raise typer.Exit(status)


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
    pods = found.all(POD)
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
        tags = (node["metadata"].get("labels") or {}).items()
        if pool := next((one for one in env.pools if one.selector and one.selector.items() <= tags), None):
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


def _rehearsed(proposal: Proposal, outcome: Outcome) -> Iterator[Any]:
    from gpuform.reports.rehearsal import nodes_and_pods, pending_lines, verdict_line

    bought = nodes_and_pods(outcome)
    rows = [(name, f"{one.nodes}x {_machine(one)}", *bought[name]) for name, one in proposal.groups]
    yield build_table("rehearsed", ("pool", "planned", "bought", "pods placed"), rows, whole=("pool",))
    yield from (*pending_lines(outcome), verdict_line(outcome))


def _pools(proposal: Proposal) -> Any:
    rows = [
        (
            name,
            _nodes(name, group),
            _machine(group),
            group.sharing.text,
            str(group.nodes * group.candidate.gpus),
        )
        for name, group in proposal.groups
    ]
    columns = ("pool", "nodes", "machine", "sharing", "GPUs")
    return build_table("pools", columns, rows, whole=("pool", "nodes", "GPUs"))


def _nodes(name: str, group: Group) -> str:
    pool, now = group.candidate.pool, group.candidate.now
    is_new = pool is None or pool.name != name
    return str(group.nodes) if is_new or now in (None, group.nodes) else f"{group.nodes} (now {now})"


def _machine(group: Group) -> str:
    one = group.candidate
    return one.machine or f"{one.gpus} x {one.gpu.name}"


def _placements(plan: Plan, proposal: Proposal) -> Any:
    needs = {need.name: need for need in plan.needs}
    rows = []
    for one in proposal.placed:
        need = needs[one.demand]
        memory = f"{need.memory_mib / 1024:.1f} GiB" if need.memory_mib else "-"
        compute = f"{need.compute:.0%}" if need.compute else "-"
        rows.append((one.demand, str(one.pods), one.part, one.pool, memory, compute))
    columns = ("demand", "pods", "each gets", "in pool", "needs memory", "throughput")
    return build_table("demands", columns, rows, whole=("pods",), optional=("throughput", "needs memory"))


def _pictures(proposal: Proposal) -> Iterator[str]:
    """One GPU of each pool to scale: an eighth of its memory, or a share, is as wide as the next."""
    width = max(len(name) for name, _ in proposal.groups)
    for name, group in proposal.groups:
        yield f"{name:{width}}  {_picture(group)}  x {group.nodes * group.candidate.gpus}"


def _picture(group: Group) -> str:
    geometry, sharing = group.candidate.gpu.geometry, group.sharing
    if not sharing.layout or geometry is None:
        text = sharing.text.partition(",")[0] if sharing.replicas == 1 else f"1/{sharing.replicas}"
        number = min(sharing.replicas, 8)
        size = 8 * _CELL // number - 2
        return number * f"[{text[:size]:^{size}}]" + ("..." if number < sharing.replicas else "")
    unit = 8 * _CELL // geometry.memory
    line = ["·"] * geometry.memory * unit
    widths = {profile.name: profile.memory * unit for profile in geometry.profiles}
    for profile, start in geometry.placements(dict(sharing.layout)) or ():
        size = widths[profile]
        line[start * unit : start * unit + size] = f"[{profile[: size - 2]:^{size - 2}}]"
    return "".join(line)


def _alternatives(why: list[Alternative]) -> Any:
    rows, last = [], ("", "")
    for one in why:
        shown = ("", "") if (one.demand, one.gpu) == last else (one.demand, one.gpu)
        last = one.demand, one.gpu
        rows.append((*shown, one.part, ("chosen", "green") if one.chosen else one.reason))
    columns = ("demand", "GPU", "part", "")
    return build_table("alternatives", columns, rows, whole=("part",), optional=("GPU",))


def _steps(steps: Sequence[Step]) -> Any:
    """What each update changes; counts are nodes."""
    rows = []
    for number, step in enumerate(steps, 1):
        nodes = [f"{name} {now} -> {then}" for name, now, then in step.changes]
        moved = [f"{name}, waits for it" if name in step.waiting else name for name in step.moved]
        rows.append((str(number), "\n".join(nodes) or "-", "\n".join(moved) or "-"))
    return build_table(
        "updates", ("update", "nodes", "workloads that get other GPUs"), rows, whole=("update",)
    )


def _relabelled(steps: Sequence[Step]) -> Iterator[str]:
    """Nodes of a running cluster for which labels decide in which pool they are."""
    from infra.planner.proposal import PART_LABEL

    for number, step in enumerate(steps, 1):
        for pool in sorted({*step.labels.values()}):
            nodes = " ".join(sorted(node for node, name in step.labels.items() if name == pool))
            yield f"before update {number}: kubectl label node {nodes} {PART_LABEL}={pool} --overwrite"


def _summary(plan: Plan) -> Iterator[str]:
    from infra.planner.plan import is_same

    proof = "proved: no plan for these demands needs less"
    if plan.price - plan.bound > 1e-4 * max(plan.price, 1):
        proof = f"no plan needs less than {_amount(plan.bound, plan.unit)}"
        if not plan.complete:
            proof += "; the search was stopped, --limit gives it more time"
    yield f"{_amount(plan.price, plan.unit)}; {proof}"
    if plan.now is not None:
        yield f"the pools as declared: {_amount(plan.now, plan.unit)}"
    changed = [
        group
        for group in plan.groups
        if group.candidate.pool and not is_same(group.candidate.pool, group.sharing)
    ]
    if changed:
        nodes = count_of(sum(group.nodes for group in changed), "node")
        yield f"{nodes} would be shared in another way; `gpuform preview` shows which pods that evicts"


def _amount(price: float, unit: str) -> str:
    if unit == "GPUs":
        return count_of(round(price), "GPU")
    return f"{price:,.2f} USD per hour ({price * HOURS_PER_MONTH:,.0f} a month)"


def _notes(proposal: Proposal, left: Sequence[str]) -> Iterator[str]:
    for pool in proposal.unused:
        yield f"pool {pool} is left out: no workload of the stack uses it"
    yield from left
    if proposal.refusal:
        yield f"gpuform would refuse these pools: {proposal.refusal}"


def _document(
    plan: Plan, proposal: Proposal, steps: Sequence[Step], why: list[Alternative], left: Sequence[str]
) -> dict[str, Any]:
    from infra.planner.proposal import PART_LABEL

    return {
        "unit": plan.unit,
        "price": round(plan.price, 4),
        "bound": round(plan.bound, 4),
        "complete": plan.complete,
        "now": None if plan.now is None else round(plan.now, 4),
        "nodes": [
            {
                "pool": name,
                "nodes": group.nodes,
                "machine": group.candidate.machine or None,
                "gpu": group.candidate.gpu.name,
                "gpus": group.nodes * group.candidate.gpus,
                "sharing": group.sharing.text,
            }
            for name, group in proposal.groups
        ],
        "pools": list(proposal.pools),
        "demands": [asdict(one) for one in proposal.placed],
        "steps": [
            {
                "nodes": [{"pool": name, "before": now, "after": then} for name, now, then in step.changes],
                "labels": [{"node": node, PART_LABEL: pool} for node, pool in step.labels.items()],
                "moved": list(step.moved),
                "waiting": list(step.waiting),
            }
            for step in steps
        ],
        "alternatives": [asdict(one) for one in why],  # with --explain
        "left_out": list(proposal.unused),
        "notes": list(left),
        "refusal": proposal.refusal or None,
    }
