"""``gpuform hosts verify``: check hosts against what is declared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import AsJson, console, say

if TYPE_CHECKING:
    from infra.model.environment import Environment
    from lab.toolchain import Toolchain


def verify(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")] = "onprem-dev",
    as_json: AsJson = False,
    backend: Annotated[
        Literal["ssh", "kubectl"] | None,
        typer.Option(help="ssh to the hosts, or kubectl in the operator's driver and toolkit pods."),
    ] = None,
    limit: Annotated[list[str] | None, typer.Option(help="Only this host or group; may be repeated.")] = None,
) -> None:
    """Check hosts against what is declared, and show the fix for each finding. Exit code 1 if a check failed.

    Own hosts are checked over ssh, the nodes of any other cluster with kubectl. Nothing is changed.
    """
    from gpuform.checkout.stacks import declared
    from gpuform.hosts import verify as checks
    from gpuform.reports import hosts as tables
    from lab.toolchain import Toolchain

    paths = Paths.here()
    env = declared(stack, paths)
    way = backend or ("ssh" if env.by_ssh else "kubectl")
    tools = Toolchain(paths)
    inventory = _inventory(env, way, paths)
    asks_cluster = any(host.get("gpuform_kubeconfig") for host in inventory["_meta"]["hostvars"].values())
    report = checks.verify(
        inventory,
        paths.root,
        stack=stack,
        backend=way,
        limit=limit or (),
        kubectl=_kubectl(tools) if asks_cluster else None,
    )
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        for table in tables.checks(report):
            console.print(table, "")
        for line in tables.failures(report):
            say(line)
    if not report.ok:
        raise typer.Exit(1)


def _inventory(env: Environment, backend: str, paths: Paths) -> dict[str, Any]:
    import httpx

    from gpuform.hosts import expectations
    from gpuform.stack.cluster_access import cluster_of

    if env.by_ssh:
        if backend == "kubectl" and not env.kubeconfig:
            fact = "the hosts have joined no cluster (cluster.kubeconfig)"
            raise InputError("--backend", fact, "use --backend ssh")
        if env.kubeconfig and not Path(env.kubeconfig).expanduser().is_file():
            remedy = "leave it out until the hosts have joined a cluster"
            raise InputError("cluster.kubeconfig", f"{env.kubeconfig} does not exist", remedy)
        return expectations.of_hosts(env)
    if backend == "ssh":
        fact = f"the nodes of a cluster of kind {env.cluster.kind} are not reached by ssh"
        raise InputError("--backend", fact, "use --backend kubectl")
    file, context = cluster_of(env, paths)
    try:
        found = expectations.of_nodes(env, _nodes(file, context), file, context)
    except (OSError, httpx.HTTPError, ValueError) as error:
        fact = f"cannot be reached ({error or type(error).__name__})"
        raise Failure(f"cluster of {env.name}", fact, f"check {file}") from None
    return found


def _nodes(kubeconfig: Path, context: str | None) -> list[dict[str, Any]]:
    from kr8s.objects import Node

    from gpuform.kubernetes import reading
    from gpuform.kubernetes.kubeconfigs import answered

    with answered():
        api = reading.api(kubeconfig, context)
        return [dict(node.raw) for node in Node.list(api=api) if isinstance(node, Node)]


def _kubectl(tools: Toolchain) -> Path:
    tools.ensure("kubectl")
    return tools.path("kubectl")
