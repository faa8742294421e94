"""Output of the commands: tables and results go to stdout, without styles if it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from gpuform.checkout.errors import Failure
from gpuform.kubernetes.kubeconfigs import said, unreachable

if TYPE_CHECKING:
    from gpuform.checkout.paths import Paths
    from infra.model.environment import Environment

AsJson = Annotated[bool, typer.Option("--json", help="As JSON: docs/reference/json.md.")]
Acknowledge = Annotated[
    list[str] | None,
    typer.Option(help="Name of a cluster, pool, namespace or volume that may be lost. May be repeated."),
]
WIDE = 200  # without a terminal no line is folded: logs and pipes take long lines

# rich reads NO_COLOR by itself.
console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)


def say(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def warn(line: str) -> None:
    """Print one line to stderr, apart from the command's result."""
    print(line, file=sys.stderr)


def caution(env: Environment) -> None:
    """Print the environment's warnings to stderr; they do not stop the command."""
    for line in env.warnings:
        warn(f"warning: {line}")


def short_path(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def reach_cluster(
    env: Environment, paths: Paths, stack: str
) -> AbstractContextManager[tuple[Path, str | None]]:
    """Kubeconfig and context for commands that only read."""
    from gpuform.clouds import cloud_of
    from gpuform.stack.cluster_access import access
    from lab.toolchain import Toolchain

    return access(env, cloud_of(env).access, paths, stack, Toolchain(paths))


def require_passed(env: Environment, paths: Paths, stack: str, console: Console) -> None:
    """Print what did not pass; Failure if a check failed. Nothing is printed of a kind without an account."""
    from gpuform.clouds import cloud_of
    from gpuform.reports.stack import require_preflight
    from gpuform.stack.preflight import run_checks

    preflight = cloud_of(env).preflight
    if preflight.before_update:
        require_preflight(stack, run_checks(preflight, env, paths, stack), console)


@contextmanager
def answering(stack: str, kubeconfig: Path) -> Iterator[None]:
    """Raise Failure if the cluster does not answer, rejects the kubeconfig, or was never created."""
    import httpx

    try:
        yield
    except (OSError, httpx.HTTPError, ValueError) as error:
        what = f"cluster of {stack}"
        if stack == "local":
            fact = f"cannot be reached ({said(error)})"
            raise Failure(what, fact, "start it with `gpuform local start`") from None
        if not kubeconfig.exists():
            remedy = f"create the cluster (`gpuform up {stack}`), or correct the path"
            raise Failure(what, f"the kubeconfig {kubeconfig} does not exist", remedy) from None
        raise unreachable(stack, kubeconfig, error) from None
