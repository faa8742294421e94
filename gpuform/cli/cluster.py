"""``gpuform status`` and ``gpuform render``: a stack's live state, and its manifests."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure
from gpuform.checkout.paths import Paths
from gpuform.cli.output import AsJson, answering, caution, console, reach_cluster, say

if TYPE_CHECKING:
    from policies.rule import Resource

MOST_WAITING = 10
"""Of each queue, in the order in which they came."""

Stack = Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")]


def status(stack: Stack = "local", as_json: AsJson = False) -> None:
    """Show pools, nodes, what they offer, which pods use it, queues, and what it costs."""
    from gpuform.checkout.stacks import declared
    from gpuform.reports import bills, tables
    from gpuform.usage.status import read
    from infra.config import price_list
    from infra.plan import cost
    from infra.plan.bill import document

    paths = Paths.here()
    env = declared(stack, paths)
    with reach_cluster(env, paths, stack) as (kubeconfig, context), answering(stack, kubeconfig):
        current = read(env, kubeconfig, context)
    bill = cost.bill(env, price_list(env))
    if as_json:
        typer.echo(json.dumps({**current.to_json(), "cost": document(bill)}, indent=2))
        return
    console.print(tables.pools(current), "", tables.pods(current), "", sep="\n")
    if current.queues:
        console.print(tables.filled("Queues", tables.QUEUES, tables.queues(current.queues)), "", sep="\n")
        lines = list(tables.waiting(current, MOST_WAITING))
        if lines:
            console.print(tables.filled("Waiting", tables.WAITING, lines), "", sep="\n")
    if not env.simulated or env.cost:
        console.print(bills.table(None, bill), "", sep="\n")
    for trouble in tables.troubles(current):
        say(trouble)
    if kubeconfig == paths.kubeconfig:
        say(tables.SIMULATED)
        if not env.simulated:
            say(tables.played(stack, current))


def render(
    stack: Stack,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder; created if missing.")],
    charts: Annotated[
        bool,
        typer.Option(
            "--charts", help="Also check the charts' rendered objects; downloads third-party charts."
        ),
    ] = False,
) -> None:
    """Write the resolved environment and every manifest; the same input gives the same bytes.

    The policy pack checks the result. Exit code 1 if a policy above severity low is broken.
    """
    from gpuform.checkout.stacks import declared
    from gpuform.stack import policy_check as judging
    from infra.config import price_list
    from infra.inventory import keys
    from infra.plan.render import render as files

    paths = Paths.here()
    env = declared(stack, paths)
    caution(env)
    rendered = files(env, keys(env, paths.root), price_list(env))
    writable.require(output, "name a writable folder with -o")
    output.mkdir(parents=True, exist_ok=True)
    for name, text in rendered.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text)
    say(f"{len(rendered)} files in {output}")
    if others := _others(output, rendered):
        origin = "from an earlier rendering or another source"
        say(f"other files in these folders: {len(others)}, {origin}, such as {', '.join(others[:4])}")
    judged = list(judging.resources(rendered))
    if charts:
        judged += _charts(rendered)
    found = judging.findings(judged)
    for line in judging.lines(found):
        say(line)
    if any(one.rule.severity != "low" for one in found):
        raise Failure("policies", f"{len(found)} broken", "see docs/reference/policies.md")


def _others(output: Path, rendered: dict[str, str]) -> list[str]:
    """Other files in the folders of the rendering; they are kept, and reported."""
    folders = {(output / name).parent for name in rendered}
    there = {
        str(file.relative_to(output)) for folder in folders for file in folder.iterdir() if file.is_file()
    }
    return sorted(there - set(rendered))


def _charts(rendered: dict[str, str]) -> list[Resource]:
    """Objects of every chart that can be fetched; a line says which charts are not checked."""
    from gpuform.stack import policy_check as judging
    from lab.toolchain import Toolchain

    paths, found = Paths.here(), []
    helm = Toolchain(paths).path("helm")
    for release in judging.releases(rendered):
        try:
            objects = list(judging.objects(judging.templated(helm, paths.root, release)))
        except (OSError, subprocess.SubprocessError):
            say(f"chart {release['chart']} cannot be fetched: its objects are not checked")
            continue
        say(f"chart {release['chart']}: {len(objects)} objects checked")
        found += objects
    return found
