"""``gpuform images``: what a stack's cluster pulls, for mirrors and air gaps."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from gpuform.checkout.paths import Paths
from gpuform.cli.cluster import Stack
from gpuform.cli.output import AsJson, caution, say, warn

if TYPE_CHECKING:
    from infra.plan.images import Pulled


def images(stack: Stack = "local", as_json: AsJson = False) -> None:
    """List the charts, EKS add-ons and images that the cluster pulls, with the digest if pinned; offline."""
    from gpuform.checkout.stacks import declared
    from infra.plan import images as planned

    env = declared(stack, Paths.here())
    caution(env)
    found = planned.pulled(env)
    for source in planned.unused(env, found):
        warn(f"warning: registries.{source}: redirects nothing of this stack; is the name right?")
    if as_json:
        typer.echo(json.dumps({"stack": stack, "pulled": [asdict(one) for one in found]}, indent=2))
        return
    if env.simulated:
        warn("the nodes are simulated: they pull none of these images")
    for line in _lines(found):
        say(line)


def _lines(found: list[Pulled]) -> list[str]:
    """One line each: kind, name and its name in the mirror, digest, users."""
    rows = [(one.kind, _name(one), one.digest or "unknown", ", ".join(one.used_by)) for one in found]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return ["  ".join((*(row[i].ljust(widths[i]) for i in range(3)), row[3])) for row in rows]


def _name(one: Pulled) -> str:
    return one.name if one.pulled_as == one.name else f"{one.name} -> {one.pulled_as}"
