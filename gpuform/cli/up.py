"""``gpuform up``: the account is asked first, then the engine makes what the stack declares."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuform.cli.output import console, say, warn
from gpuform.errors import Failure, InputError
from gpuform.paths import Paths

if TYPE_CHECKING:
    from gpuform.finding import Finding

LOCAL = "local"


def up(
    stack: Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")],
    offline: Annotated[
        bool, typer.Option("--offline", help="Reach no cloud: a stand-in answers for AWS and makes nothing.")
    ] = False,
    skip_preflight: Annotated[
        bool, typer.Option("--skip-preflight", help="Ask nothing of the account beforehand.")
    ] = False,
    policy_pack: Annotated[
        list[Path] | None, typer.Option(help="Folder of policies that must hold. May be repeated.")
    ] = None,
) -> None:
    """Make the stack what its file says; an AWS account is asked first whether that can succeed.

    Exit code 1 if a check fails, and then nothing is changed: see `gpuform doctor STACK`.
    """
    from gpuform import preflight
    from gpuform.engine import Engine
    from gpuform.stacks import declared
    from gpuform.toolchain import Toolchain

    paths = Paths.here()
    env = declared(stack, paths)
    if stack == LOCAL:
        raise InputError("STACK", f"{LOCAL!r} runs on the embedded control plane", "use `gpuform local up`")
    if env.cluster.kind == "aws" and not offline and not skip_preflight:
        require(stack, preflight.findings(env, stack))
    result = Engine(paths, Toolchain(paths), say=warn, offline=offline).up(
        stack, policy_packs=[folder.resolve() for folder in policy_pack or ()]
    )
    say(result.summary)


def require(stack: str, findings: Iterable[Finding]) -> None:
    """Show what did not pass, and how many did; Failure if something failed."""
    from gpuform.reports import tables

    found = list(findings)
    shown = [finding for finding in found if finding.verdict != "PASS"]
    failed = sum(finding.verdict == "FAIL" for finding in shown)
    if shown:
        console.print(tables.findings(shown))
        for line in tables.by_hand(shown):
            say(line)
    say(
        f"preflight of stack {stack}: {len(found) - len(shown)} of {len(found)} checks passed, {failed} failed"
    )
    if failed:
        raise Failure(
            f"preflight of stack {stack}",
            f"{failed} of {len(found)} checks failed, and nothing was changed",
            "mend them, or do without them: --skip-preflight (pulumi: GPUFORM_SKIP_PREFLIGHT=1)",
        )
