"""``gpuform up``: makes a stack match its file, on the stack's own control plane or in a cloud."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure
from gpuform.checkout.listing import count_of
from gpuform.checkout.paths import Paths
from gpuform.checkout.placeholders import require_own_values
from gpuform.checkout.stacks import load_environment
from gpuform.cli.observe import read_facts
from gpuform.cli.output import (
    Acknowledge,
    Offline,
    Only,
    Stack,
    Yes,
    console,
    has_terminal,
    page_of,
    print_warnings,
    require_consent,
    require_passed,
    say,
    warn,
    working,
)
from gpuform.cli.target import Target
from gpuform.engine import Engine, EngineFailure, Result
from gpuform.engine.checkpoint import guard_records
from gpuform.engine.pending import Operation
from gpuform.reports import tables
from gpuform.usage.nodes import Pod
from gpuform.usage.status import ClusterStatus, faulty_nodes, read_status, unsettled_pools
from infra.model.environment import Environment
from infra.strict_yaml import short_path
from lab.plane import ControlPlane, Member, Status
from lab.plane.monitoring import PROGRAMS
from lab.toolchain import Toolchain
from lab.toolchain.catalogue import MAIN_JOB

SETTLE_S = 60.0  # a simulated operand acts within a second or two; a minute means that it never will
UNCHANGED_S = 5.0  # the same if the engine had nothing to do: operands of a restarted control plane come back
UNREFRESHED = "not checked: changes made by hand (`gpuform up {0} --refresh` undoes them)"
Say = Callable[[str], None]
Refresh = Annotated[
    bool, typer.Option("--refresh", help="First look for changes made by hand; the update undoes them.")
]


def settler(
    stack: str, paths: Paths, engine: Engine, at_cloud: bool, say: Say
) -> Callable[[Sequence[Operation]], object]:
    """A function that settles operations of an interrupted run, or given up by a provider."""

    def settle(pending: Sequence[Operation]) -> object:
        from gpuform.clouds import RECOVERIES
        from gpuform.stack import recover as recovery

        return recovery.resume(recovery.Stack(stack, paths, engine, RECOVERIES, at_cloud), pending, say)

    return settle


def run_up(
    engine: Engine,
    stack: str,
    paths: Paths,
    at_cloud: bool,
    say: Say,
    packs: Sequence[Path] = (),
    acknowledged: Sequence[str] = (),
) -> Result:
    """Run ``Engine.up`` after settling what is left; at a cloud, again once the cloud has done its part."""
    settle = settler(stack, paths, engine, at_cloud, say)

    def run() -> Result:
        return engine.up(stack, policy_packs=packs, settle=settle, acknowledged=acknowledged)

    try:
        return run()
    except EngineFailure as failure:
        if not at_cloud:
            raise
        from gpuform.clouds import RECOVERIES
        from gpuform.stack import recover as recovery

        return recovery.retry_after_cloud(recovery.Stack(stack, paths, engine, RECOVERIES), failure, run, say)


def up(
    stack: Stack,
    offline: Offline = False,
    skip_preflight: Annotated[
        bool, typer.Option("--skip-preflight", help="Skip the preflight checks of the account.")
    ] = False,
    policy_pack: Annotated[
        list[Path] | None, typer.Option(help="Folder of a policy pack to enforce. May be repeated.")
    ] = None,
    acknowledge: Acknowledge = None,
    refresh: Refresh = False,
    only: Only = None,
    yes: Yes = False,
) -> None:
    """Make the stack match its file, after a preflight of the account or project.

    Shows what a cloud costs, and asks; --yes does not, nor does a run without a terminal.
    Exit code 1 if a check fails (see `gpuform doctor STACK`), or if a cluster, data or running pods would be
    lost without --acknowledge; then nothing is changed.
    """
    from gpuform.clouds import cloud_of
    from gpuform.stack import scope
    from gpuform.stack.preflight import require_possible
    from gpuform.stack.preflight.check import local_state, require_sdk
    from infra.config import price_list
    from infra.plan.cost import bill
    from infra.plan.losses import may_lose

    began = time.monotonic()
    paths = Paths.here(stack)
    env = load_environment(stack, paths)
    require_sdk(env)
    parts = scope.parse(only, env)
    writable.require_state(paths.state)
    offline = offline and not env.is_simulated  # an embedded stack contacts no cloud
    print_warnings(env)
    at_cloud = not offline and not env.is_simulated
    if at_cloud:
        require_own_values(env)
        # Before a preflight, which would take the controller's operator for another's.
        scope.require_same(stack, local_state(paths, stack), parts)
    if not offline and not skip_preflight:
        require_passed(env, paths, stack, console, parts)
    packs = [folder.resolve() for folder in policy_pack or ()]
    if at_cloud:
        say(tables.cost_line(stack, bill(env, price_list(env, paths.prices))))
        require_consent(yes or not has_terminal(), f"Make {stack} match its file at this cost?")
    tools = Toolchain(paths)
    is_here = runs_here(env, offline)
    # What measures comes last: a cluster is of use before it.
    unmeasured = is_here and env.monitoring and any(tools.locate(name).path is None for name in PROGRAMS)
    if is_here:
        tools.ensure(*(name for name in MAIN_JOB if name not in PROGRAMS))  # has a live line of its own
    with working(f"updating {stack}") as show_work:
        engine = Engine(paths, tools, say=say, offline=offline, show_work=show_work, only=parts)
        if is_here:
            start_plane(env, paths, tools, engine, say, measured=not unmeasured)
        accepted = (*env.acknowledge_loss, *(acknowledge or ()))
        try:
            state = engine.export(stack)
            scope.require_same(stack, state, parts)
            require_possible(cloud_of(env).preflight.refusals, env, state, live=at_cloud)
            if may_lose(guard_records(state), env):
                # What is in the cluster is judged only once the cluster is up to date: refuse before that.
                engine.preview(stack, lambda event: None, acknowledged=accepted)
            if refresh:
                say(f"comparing the state of {stack} with what exists")
                # Its events show others' changes as its own.
                engine.refresh(stack, on_event=lambda event: None)
        except EngineFailure as failure:
            for error in failure.result.errors[1:]:  # these runs print nothing themselves
                warn(error)
            raise
        result = run_up(engine, stack, paths, at_cloud, say, packs, accepted)
        settled = _settle(env, paths, engine, result) if env.is_simulated else None
    if settled is not None:
        _show_embedded(env, paths, *settled)
    say(f"{result.summary}; {time.monotonic() - began:.0f} s total")
    if result.changes.get("same") and not refresh:
        say(UNREFRESHED.format(stack))
    if settled is not None:
        _require_settled(settled[0], paths)
    if unmeasured:
        say("the cluster is ready; now the programs of its monitoring (Ctrl-C leaves it without)")
        _measure(ControlPlane(paths, tools), tools)


def _measure(plane: ControlPlane, tools: Toolchain) -> None:
    """Get Prometheus and kube-state-metrics; show where they answer once their keeper has started them."""
    tools.ensure(*PROGRAMS)
    plane.prepare_monitoring(say)
    deadline = time.monotonic() + SETTLE_S
    while _prometheus(status := plane.status()) is None and time.monotonic() < deadline:
        time.sleep(0.5)
    for line in monitoring_lines(status):
        say(line)


def _prometheus(status: Status) -> Member | None:
    running = (member for member in status.members if member.name == "prometheus" and member.running)
    return next(running, None)


def runs_here(env: Environment, offline: bool) -> bool:
    """Whether the stack's cluster is a control plane on this machine."""
    from lab.rehearse.nodes import simulated_nodes

    return env.is_simulated or (offline and simulated_nodes(env).by_cloud)


def start_plane(
    env: Environment, paths: Paths, tools: Toolchain, engine: Engine, say: Say, measured: bool
) -> None:
    """Start the stack's control plane with what the environment declares, and the nodes of a simulated cloud.

    The state of a stack without a control plane describes a deleted one, so it is forgotten.
    """
    from lab.rehearse import nodes

    plane = ControlPlane(paths, tools)
    if not plane.has_data and (count := engine.forget(paths.stack)):
        say(f"the control plane of {paths.stack} is new: the state of {count} resources is forgotten")
    plane.start_for(env, say, measured=measured)
    if nodes.simulated_nodes(env).by_cloud:
        nodes.apply_nodes(env, paths, tools)


def _settle(env: Environment, paths: Paths, engine: Engine, result: Result) -> tuple[ClusterStatus, bool]:
    """Wait until every pool offers what was planned; if it does not, refresh the state and update once more.

    Gives the cluster's status, and whether the pods are listed: the stack is new, or one does not run.
    """
    current = _wait_until_settled(env, paths, SETTLE_S if result.changed else UNCHANGED_S)
    if waiting := _unsettled_names(current):
        say(f"pools {waiting} do not offer what was planned: refreshing the state")
        engine.refresh(paths.stack, on_event=lambda event: None)  # its events show others' changes as its own
        engine.up(paths.stack)
        current = _wait_until_settled(env, paths, SETTLE_S)
    pending = any(pod.phase not in ("Running", "Succeeded") for pod in _pods(current))
    return current, pending or not result.changes.get("same")


def _pods(current: ClusterStatus) -> list[Pod]:
    return [pod for pod in current.pods if pod.namespace not in current.system]


def _show_embedded(env: Environment, paths: Paths, current: ClusterStatus, list_pods: bool) -> None:
    """Show pools, pods and where monitoring answers, and write the report."""
    console.print(tables.pools_table(current), "", sep="\n")
    if list_pods:
        console.print(tables.pods_table(current), "", sep="\n")
    else:
        say(
            f"{count_of(len(_pods(current)), 'pod')}, none pending; `gpuform status {paths.stack}` lists them"
        )
    if waiting := sum(len(queue.waiting) for queue in current.queues):
        say(f"waiting in queues: {count_of(waiting, 'workload')}; `gpuform status {paths.stack}` says why")
    say(f"report: {short_path(_write_report(env, paths))}")
    plane = ControlPlane(paths, Toolchain(paths))
    for line in monitoring_lines(plane.status()):
        say(line)
    say(tables.simulated_line(plane.operator))
    if env.uses_packer:
        say(tables.PACKED)


def _require_settled(current: ClusterStatus, paths: Paths) -> None:
    """Raise Failure if a pool does not offer what was planned; warn where an injected fault is the cause."""
    for name, why in faulty_nodes(current).items():
        warn(f"node {name} does not offer what was planned, because a fault was injected: {why}")
    if waiting := _unsettled_names(current):
        raise Failure(
            f"pools {waiting}",
            f"do not offer what was planned after {SETTLE_S:.0f} s",
            f"see the nodes' events with kubectl, and {paths.plane / 'logs' / 'simulator.log'}",
        )


def monitoring_lines(status: Status) -> Iterator[str]:
    """Prometheus's address, if it runs, and where monitoring differs from the declaration."""
    if member := _prometheus(status):
        yield f"alerts: http://127.0.0.1:{member.port}/api/v1/alerts (Prometheus; of simulated GPUs)"
    yield from (f"monitoring: {line}" for line in status.sidecar_messages)


def _write_report(env: Environment, paths: Paths) -> Path:
    from gpuform.reports.page import save_page

    file = page_of(paths)
    save_page(file, read_facts(Target(paths.stack, env, paths), paths.kubeconfig, None), paths.installation)
    return file


def _wait_until_settled(env: Environment, paths: Paths, seconds: float) -> ClusterStatus:
    """The cluster's status once every pool offers what was planned, or after ``seconds``."""
    deadline = time.monotonic() + seconds
    while True:
        current = read_status(env, paths.kubeconfig)
        if not _unsettled_names(current) or time.monotonic() > deadline:
            return current
        time.sleep(0.3)


def _unsettled_names(current: ClusterStatus) -> str:
    return ", ".join(pool.name for pool in unsettled_pools(current))
