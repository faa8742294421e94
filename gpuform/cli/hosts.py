"""``gpuform hosts``: prepare, check and inspect own hosts, and verify any cluster's hosts, without Pulumi."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpuform.checkout import stacks
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.listing import count_of
from gpuform.checkout.paths import Paths
from gpuform.checkout.placeholders import require_own_values
from gpuform.cli.output import AsJson, Stack, Yes, console, require_consent, say, show
from gpuform.reports import hosts as tables
from infra.model.environment import Environment
from lab.toolchain import Toolchain

if TYPE_CHECKING:
    from gpuform.hosts import Outcome
    from gpuform.hosts.declared import DeclaredHosts

DRIFT = 3  # exit code: nothing failed, and a run would change something
STATUS = "status.yml"
Limit = Annotated[list[str] | None, typer.Option("--limit", help="Only this host or group; may be repeated.")]
Playbook = Annotated[str, typer.Option(help="File of ansible/playbooks.")]

hosts = typer.Typer(no_args_is_help=True, help="Prepare, check and inspect own hosts over ssh.")


@hosts.command()
def verify(
    stack: Stack,
    as_json: AsJson = False,
    backend: Annotated[
        Literal["ssh", "kubectl"] | None,
        typer.Option(help="ssh to the hosts, or kubectl in the operator's driver and toolkit pods."),
    ] = None,
    limit: Limit = None,
) -> None:
    """Check hosts against what is declared, and show the fix for each finding. Exit code 1 if a check failed.

    Own hosts are checked over ssh, the nodes of any other cluster with kubectl. Nothing is changed.
    """
    from gpuform.hosts import verify as checks

    paths = Paths.here(stack)
    env = stacks.load_environment(stack, paths)
    way = backend or ("ssh" if env.uses_ssh else "kubectl")
    inventory = _inventory(env, way, paths)
    asks_cluster = any(host.get("gpuform_kubeconfig") for host in inventory["_meta"]["hostvars"].values())
    report = checks.verify(
        inventory,
        stack=stack,
        backend=way,
        limit=limit or (),
        kubectl=_kubectl(paths) if asks_cluster else None,
    )
    show(as_json, report.to_json(), (part for table in tables.check_tables(report) for part in (table, "")))
    for line in tables.failure_lines(report) if not as_json else ():
        say(line)
    if not report.ok:
        raise typer.Exit(1)


def _inventory(env: Environment, backend: str, paths: Paths) -> dict[str, Any]:
    from gpuform.hosts import expectations
    from gpuform.stack.cluster_access import declared_kubeconfig

    if env.uses_ssh:
        if backend == "kubectl" and not env.kubeconfig:
            fact = "the hosts have joined no cluster (cluster.kubeconfig)"
            raise InputError("--backend", fact, "use --backend ssh")
        require_own_values(env)
        _require_kubeconfig(env.kubeconfig)
        return expectations.hosts_inventory(env)
    if backend == "ssh":
        fact = f"the nodes of a cluster of kind {env.cluster.kind} are not reached by ssh"
        raise InputError("--backend", fact, "use --backend kubectl")
    file, context = declared_kubeconfig(env, paths)
    try:
        return expectations.nodes_inventory(env, _nodes(file, context), file, context)
    except (OSError, ValueError) as error:
        fact = f"cannot be reached ({error or type(error).__name__})"
        raise Failure(f"cluster of {env.name}", fact, f"check {file}") from None


def _nodes(kubeconfig: Path, context: str | None) -> list[dict[str, Any]]:
    from gpuform.kubernetes.cluster import Reader
    from gpuform.kubernetes.kinds import NODE

    with Reader(kubeconfig, context) as cluster:
        return cluster.list_objects(NODE)


def _kubectl(paths: Paths) -> Path:
    """Path of kubectl, which is fetched if missing."""
    tools = Toolchain(paths)
    tools.ensure("kubectl")
    return tools.path("kubectl")


def _require_kubeconfig(declared: str | Path | None) -> None:
    if declared and not Path(declared).expanduser().is_file():
        remedy = "leave it out until the hosts have joined a cluster"
        raise InputError("cluster.kubeconfig", f"{declared} does not exist", remedy)


@hosts.command()
def apply(
    stack: Stack,
    limit: Limit = None,
    playbook: Playbook = "site.yml",
    as_json: AsJson = False,
    yes: Yes = False,
) -> None:
    """Prepare the hosts; run it again to resume after a failure. Exit code 1 unless every host is done.

    Shows the hosts and asks; without a terminal, or with --json, --yes is needed. If the stack names a
    kubeconfig, nodes that have joined get their pool's labels and taints.
    """
    from gpuform.hosts.listing import requested_hosts

    declared = _declared_hosts(stack)
    _require_kubeconfig(declared.kubeconfig)
    hosts = requested_hosts(declared.inventory, limit or ())
    if not yes and not as_json:
        console.print(tables.targets_table(declared.inventory, hosts))
        say(tables.effects_line(stack, playbook))
    require_consent(yes, f"Change {count_of(len(hosts), 'host')} of {stack}?", as_json)
    outcome = _run_playbook(declared, playbook, limit, as_json, check=False)
    nodes = _label_nodes(declared, outcome)
    _show_outcome(outcome, as_json, check=False, nodes=nodes)
    for pool, names in nodes.items() if not as_json else ():
        say(f"pool {pool}: labels and taints on {', '.join(names) or 'no node, because none has joined'}")
    _require_done(outcome)


@hosts.command()
def check(
    stack: Stack,
    limit: Limit = None,
    playbook: Playbook = "site.yml",
    diff: Annotated[bool, typer.Option("--diff", help="Also show changes inside files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what `gpuform hosts apply` would change, and change nothing. Exit code 3 if anything differs."""
    outcome = _run_playbook(_declared_hosts(stack), playbook, limit, as_json, check=True)
    changes = {name: list(result.changes) for name, result in outcome.hosts.items()}
    _show_outcome(outcome, as_json, check=True, diffs=diff, changes=changes)
    _require_done(outcome)
    if any(result.changed for result in outcome.hosts.values()):
        raise typer.Exit(DRIFT)


@hosts.command()
def status(stack: Stack, limit: Limit = None, as_json: AsJson = False) -> None:
    """Show what each host has: system, driver, GPUs, toolkit. Exit code 1 if a host cannot be reached."""
    from gpuform.hosts.declared import status_rows
    from gpuform.provider.hosts.nodes import node_states

    declared = _declared_hosts(stack)
    outcome = _run_playbook(declared, STATUS, limit, as_json=True, check=False)
    if outcome.message:
        raise Failure(f"hosts of {stack}", outcome.message, "then run the same command again")
    current = status_rows(
        declared, outcome, node_states(list(outcome.hosts), declared.kubeconfig, declared.context)
    )
    show(as_json, {"hosts": current}, [tables.states_table(current)])
    for row in current if not as_json else ():
        if row["message"]:
            say(f"{row['host']}: {row['message']}")
    if not outcome.ok:
        raise typer.Exit(1)


def _declared_hosts(stack: str) -> DeclaredHosts:
    from gpuform.hosts.declared import load_hosts

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end the running playbook, then this process
    declared = load_hosts(stack, Paths.here())
    require_own_values(declared.environment)
    return declared


def _run_playbook(
    declared: DeclaredHosts, playbook: str, limit: Sequence[str] | None, as_json: bool, *, check: bool
) -> Outcome:
    from gpuform.hosts import progress, run
    from gpuform.hosts.listing import requested_hosts

    hosts = requested_hosts(declared.inventory, limit or ())
    # The driver role drains a node with kubectl.
    tools = [_kubectl(Paths.here()).parent] if declared.kubeconfig and playbook != STATUS else []
    with progress.report_progress(console, hosts, None if as_json else say) as on_event:
        return run(
            playbook, declared.inventory, check=check, limit=limit or (), tools=tools, on_event=on_event
        )


def _label_nodes(declared: DeclaredHosts, outcome: Outcome) -> Mapping[str, Sequence[str]]:
    """Set labels and taints on the nodes of finished hosts; node names by pool, empty without a cluster."""
    from gpuform.provider.hosts import nodes

    if not declared.kubeconfig:
        return {}
    done = {name for name, result in outcome.hosts.items() if result.ok}
    pools = [replace(pool, hosts=[name for name in pool.hosts if name in done]) for pool in declared.pools]
    return nodes.label_and_taint(
        declared.stack, [pool for pool in pools if pool.hosts], str(declared.kubeconfig), declared.context
    )


def _show_outcome(outcome: Outcome, as_json: bool, *, check: bool, diffs: bool = False, **more: Any) -> None:
    hosts = {name: result.to_json() for name, result in outcome.hosts.items()}
    shown = {} if outcome.message else outcome.hosts
    show(
        as_json,
        {"ok": outcome.ok, "hosts": hosts, **more},
        [tables.results_table(shown, check=check)] if shown else [],
    )
    for line in tables.detail_lines(shown, check=check, diffs=diffs) if not as_json else ():
        say(line)


def _require_done(outcome: Outcome) -> None:
    if outcome.message:
        raise Failure("hosts", outcome.message, "then run the same command again")
    if not outcome.ok:
        failed = [name for name, result in outcome.hosts.items() if not result.ok]
        fact = f"{len(failed)} of {len(outcome.hosts)} are not done ({', '.join(failed)})"
        raise Failure("hosts", fact, "fix them and run the same command again")
