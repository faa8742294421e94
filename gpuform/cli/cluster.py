"""``gpuform status`` and ``gpuform render``: a stack, live and on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from gpuform import writable
from gpuform.cli.output import console, say
from gpuform.errors import Failure
from gpuform.paths import Paths

Stack = Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")]


def status(
    stack: Stack = "local",
    as_json: Annotated[bool, typer.Option("--json", help="The documented JSON form.")] = False,
) -> None:
    """Show pools, nodes, what they offer, and who uses it."""
    import httpx

    from gpuform.reports import tables
    from gpuform.status import cluster_of, read
    from infra.config import load

    paths = Paths.here()
    env = load(paths.root / f"Pulumi.{stack}.yaml")
    kubeconfig, context = cluster_of(env, paths)
    try:
        current = read(env, kubeconfig, context)
    except (OSError, httpx.HTTPError, ValueError) as error:
        raise Failure(
            f"cluster of {stack}",
            f"cannot be reached ({error or type(error).__name__})",
            "start it with `gpuform local start`" if stack == "local" else f"look at {kubeconfig}",
        ) from None
    if as_json:
        typer.echo(json.dumps(current.to_json(), indent=2))
        return
    console.print(tables.pools(current), "", tables.pods(current), "", sep="\n")
    for trouble in tables.troubles(current):
        say(trouble)
    if env.cluster.kind == "embedded":
        say(tables.SIMULATED)


def render(
    stack: Stack,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder; made if missing.")],
) -> None:
    """Write the resolved environment and every manifest; the same input gives the same bytes."""
    from infra.config import load
    from infra.inventory import keys
    from infra.plan.render import render as files

    root = Paths.here().root
    env = load(root / f"Pulumi.{stack}.yaml")
    rendered = files(env, keys(env, root))
    writable.require(output, "name a folder that you may write with -o")
    output.mkdir(parents=True, exist_ok=True)
    for name, text in rendered.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text)
    say(f"{len(rendered)} files in {output}")
