"""``gpuform hosts``: prepare, check and inspect own hosts, without Pulumi."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.hosts_verify import verify
from gpuform.cli.output import AsJson, console, say

if TYPE_CHECKING:
    from gpuform.hosts import Outcome
    from gpuform.hosts.declared import Declared

DRIFT = 3  # exit code: nothing failed, and a run would change something
STATUS = "status.yml"
Stack = Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")]
Limit = Annotated[list[str] | None, typer.Option("--limit", help="Only this host or group; may be repeated.")]
Playbook = Annotated[str, typer.Option(help="File of ansible/playbooks.")]

app = typer.Typer(no_args_is_help=True, help="Own hosts over ssh: prepare them, and see what is on them.")
app.command()(verify)


@app.command()
def apply(
    stack: Stack = "onprem-dev", limit: Limit = None, playbook: Playbook = "site.yml", as_json: AsJson = False
) -> None:
    """Prepare the hosts; run it again to resume after a failure. Exit code 1 unless every host is done.

    If the stack names a kubeconfig, nodes that have joined get their pool's labels and taints.
    """
    found = _declared(stack)
    if found.kubeconfig and not found.kubeconfig.is_file():
        remedy = "leave it out until the hosts have joined a cluster"
        raise InputError("cluster.kubeconfig", f"{found.kubeconfig} does not exist", remedy)
    outcome = _run(found, playbook, limit, as_json, check=False)
    nodes = _put_on_nodes(found, outcome)
    if as_json:
        _print(outcome, nodes=nodes)
    else:
        _show(outcome, check=False)
        for pool, names in nodes.items():
            say(f"pool {pool}: labels and taints on {', '.join(names) or 'no node, because none has joined'}")
    _fail_for(outcome)


@app.command()
def check(
    stack: Stack = "onprem-dev",
    limit: Limit = None,
    playbook: Playbook = "site.yml",
    diff: Annotated[bool, typer.Option("--diff", help="Also show changes inside files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what `gpuform hosts apply` would change, and change nothing. Exit code 3 if anything differs."""
    outcome = _run(_declared(stack), playbook, limit, as_json, check=True)
    if as_json:
        _print(outcome, changes={name: list(result.changes) for name, result in outcome.hosts.items()})
    else:
        _show(outcome, check=True, diffs=diff)
    _fail_for(outcome)
    if any(result.changed for result in outcome.hosts.values()):
        raise typer.Exit(DRIFT)


@app.command()
def status(stack: Stack = "onprem-dev", limit: Limit = None, as_json: AsJson = False) -> None:
    """Show what each host has: system, driver, GPUs, toolkit. Exit code 1 if a host cannot be reached."""
    from gpuform.hosts.status import rows
    from gpuform.provider.hosts.nodes import ready
    from gpuform.reports import hosts as tables

    found = _declared(stack)
    outcome = _run(found, STATUS, limit, as_json=True, check=False)
    if outcome.message:
        raise Failure(f"hosts of {stack}", outcome.message, "then run the same command again")
    current = rows(found, outcome, ready(list(outcome.hosts), found.kubeconfig, found.context))
    if as_json:
        typer.echo(json.dumps({"hosts": current}, indent=2))
    else:
        console.print(tables.states(current))
        for row in current:
            if row["message"]:
                say(f"{row['host']}: {row['message']}")
    if not outcome.ok:
        raise typer.Exit(1)


def _declared(stack: str) -> Declared:
    from gpuform.hosts.declared import declared

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end the running playbook, then this process
    return declared(stack, Paths.here())


def _run(
    found: Declared, playbook: str, limit: Sequence[str] | None, as_json: bool, *, check: bool
) -> Outcome:
    from gpuform.hosts import progress, run
    from gpuform.hosts.listing import asked

    hosts = asked(found.inventory, limit or ())
    tools = _kubectl() if found.kubeconfig and playbook != STATUS else ()
    with progress.reporting(console, hosts, None if as_json else say) as on_event:
        return run(playbook, found.inventory, check=check, limit=limit or (), tools=tools, on_event=on_event)


def _kubectl() -> Sequence[Path]:
    """The folder of kubectl, with which the driver role drains a node; fetched if missing."""
    from lab.toolchain import Toolchain

    tools = Toolchain(Paths.here())
    tools.ensure("kubectl")
    return [tools.path("kubectl").parent]


def _put_on_nodes(found: Declared, outcome: Outcome) -> Mapping[str, Sequence[str]]:
    """Set labels and taints on the nodes of finished hosts; node names by pool, empty without a cluster."""
    from gpuform.provider.hosts import nodes

    done = {name for name, result in outcome.hosts.items() if result.ok}
    pools = [replace(pool, hosts=[name for name in pool.hosts if name in done]) for pool in found.pools]
    if not found.kubeconfig:
        return {}
    return nodes.put(
        found.stack, [pool for pool in pools if pool.hosts], str(found.kubeconfig), found.context
    )


def _print(outcome: Outcome, **more: Any) -> None:
    hosts = {name: result.to_json() for name, result in outcome.hosts.items()}
    typer.echo(json.dumps({"ok": outcome.ok, "hosts": hosts, **more}, indent=2))


def _show(outcome: Outcome, *, check: bool, diffs: bool = False) -> None:
    from gpuform.reports import hosts as tables

    if outcome.message:
        return
    console.print(tables.results(outcome.hosts, check=check))
    for line in tables.details(outcome.hosts, check=check, diffs=diffs):
        say(line)


def _fail_for(outcome: Outcome) -> None:
    if outcome.message:
        raise Failure("hosts", outcome.message, "then run the same command again")
    if not outcome.ok:
        bad = [name for name, result in outcome.hosts.items() if not result.ok]
        fact = f"{len(bad)} of {len(outcome.hosts)} are not done ({', '.join(bad)})"
        raise Failure("hosts", fact, "fix them and run the same command again")
