"""What commands have in common: their options, their output, and how they reach a cluster.

Tables and results go to stdout, without styles if it is not a terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console, RenderableType
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from gpuform.checkout import writable
from gpuform.checkout.errors import Failure, InputError
from gpuform.checkout.paths import MAIN_STACK, Paths
from gpuform.checkout.stack_names import list_stack_names
from gpuform.cli import JSON
from gpuform.kubernetes.kubeconfig_errors import error_text, unreachable_failure
from infra.model.checks.environment import warnings
from infra.model.environment import Environment
from lab.toolchain import Toolchain

Stack = Annotated[str, typer.Argument(help="Name of the stack: Pulumi.STACK.yaml.")]


def _only_stack() -> str:
    names = list_stack_names(Paths.here().root)
    if len(names) != 1:
        raise InputError(
            "STACK", f"is missing, and the project has {len(names)} stacks", f"name one: {', '.join(names)}"
        )
    return names[0]


OnlyStack = Annotated[
    str,
    typer.Argument(
        metavar="[STACK]",
        default_factory=_only_stack,
        show_default=False,
        help="Name of the stack: Pulumi.STACK.yaml; by default the only one.",
    ),
]


def _note_json(ctx: typer.Context, value: bool) -> bool:
    ctx.meta[JSON] = value
    return value


AsJson = Annotated[bool, typer.Option("--json", help="As JSON: docs/reference/json.md.", callback=_note_json)]
Offline = Annotated[bool, typer.Option("--offline", help="Contact no cloud: every answer is simulated.")]
Operator = Literal["real", "simulated"]
"""NVIDIA's own GPU operator with NFD, or the simulated ones."""
Acknowledge = Annotated[
    list[str] | None,
    typer.Option(help="Name of a cluster, pool, namespace or volume that may be lost. May be repeated."),
]
Only = Annotated[
    str | None,
    typer.Option(
        help="nodes,layouts: leave the rest to the GitOps controller that applies `render --gitops`."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_STACK_FILE = re.compile(r"Pulumi\.(?P<stack>[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?)\.yaml")
WIDE = 200  # without a terminal no line is folded, unless COLUMNS is set: logs and pipes take long lines

# rich reads NO_COLOR and COLUMNS by itself.
has_width = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit()
console = Console(highlight=False, width=None if has_width else WIDE)


def say(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Show a text and the elapsed time in a terminal until the block ends; yields a setter of the text."""
    if not console.is_terminal:
        yield lambda text: None
        return
    column = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    text_column = TextColumn("{task.description}", markup=False, table_column=column)
    parts = (SpinnerColumn(), TimeElapsedColumn(), text_column)
    with Progress(*parts, console=console, transient=True, expand=True) as progress:
        task = progress.add_task(text)
        yield lambda text: progress.update(task, description=text)


def warn(line: str) -> None:
    """Print one line to stderr, apart from the command's result."""
    print(line, file=sys.stderr)


def show(as_json: bool, document: Any, parts: Iterable[RenderableType]) -> None:
    """Print the result: the document, or else the parts for people."""
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    for part in parts:
        console.print(part)


def report_errors(error: InputError, as_json: bool) -> None:
    """Print bad input to stderr, and as JSON to stdout, too."""
    number = f"\n{len(error.errors)} error" if error.place.file and len(error.errors) == 1 else ""
    warn(f"{'' if error.place.file else 'error: '}{error}{number}")
    if as_json:
        found = [
            {key: value or None for key, value in asdict(one.place).items() if key != "item"}
            | {"path": one.path, "fact": one.fact, "remedy": one.remedy}
            for one in error.errors
        ]
        typer.echo(json.dumps({"errors": found}, indent=2))


def print_warnings(env: Environment) -> None:
    """Print the environment's warnings to stderr; they do not stop the command."""
    for line in warnings(env):
        warn(f"warning: {line}")


def confirm(question: str, answer: str, show_default: bool = True) -> bool:
    """Whether the user types the answer; False without a terminal."""
    if not has_terminal():
        return False
    return str(typer.prompt(question, default="no", show_default=show_default)) == answer


def require_consent(yes: bool, question: str, as_json: bool = False) -> None:
    """Ask, unless ``yes``; ends the command with 1 for another answer. Raises InputError if it cannot ask."""
    if yes:
        return
    if as_json or not has_terminal():
        fact = "is needed with --json" if as_json else "is needed without a terminal"
        raise InputError("--yes", f"{fact}; nothing was changed", "add it once you agree")
    if not confirm(f"{question} Type 'yes'", "yes"):
        warn("nothing was changed")
        raise typer.Exit(1)


def has_terminal() -> bool:
    return sys.stdin.isatty()


def page_of(paths: Paths) -> Path:
    """File of the stack's report, which `gpuform up` writes as well."""
    return paths.state / "report" / ("index.html" if paths.stack == MAIN_STACK else f"{paths.stack}.html")


def require_file(file: Path, option: str) -> None:
    """Raise InputError unless the file given by ``option`` can be written."""
    remedy = f"name a writable file with {option}"
    if file.is_dir():
        raise InputError(str(file), "is a folder", remedy)
    writable.require(file.parent, remedy)


def stack_of_new_file(output: Path) -> str:
    """The stack of the file to write. Raises InputError if it cannot be written, or names no stack."""
    match = _STACK_FILE.fullmatch(output.name)
    if match is None:
        raise InputError(
            "-o", f"{output.name} is not the name of a stack file", "write it as Pulumi.STACK.yaml"
        )
    if output.exists():
        raise InputError(str(output), "already exists", "name another file with -o")
    writable.require(output.parent, "name a file in a writable folder with -o")
    return match["stack"]


def reach_cluster(
    env: Environment, paths: Paths, stack: str
) -> AbstractContextManager[tuple[Path, str | None]]:
    """Kubeconfig and context for commands that only read."""
    from gpuform.clouds import cloud_of
    from gpuform.stack.cluster_access import read_only_kubeconfig

    return read_only_kubeconfig(env, cloud_of(env).access, paths, stack, Toolchain(paths))


def start_command(stack: str) -> str:
    """The command that starts the stack's embedded control plane."""
    return "gpuform local start" if stack == MAIN_STACK else f"gpuform local start {stack}"


def require_passed(
    env: Environment, paths: Paths, stack: str, console: Console, only: Sequence[str] = ()
) -> None:
    """Print what did not pass; Failure if a check failed. Nothing is printed of a kind without an account."""
    from gpuform.clouds import cloud_of
    from gpuform.reports.stack import require_preflight
    from gpuform.stack.preflight import run_checks

    preflight = cloud_of(env).preflight
    if preflight.before_update:
        require_preflight(stack, run_checks(preflight, env, paths, stack, only), console)


@contextmanager
def cluster_failures(stack: str, kubeconfig: Path, option: str | None = None) -> Iterator[None]:
    """Raise Failure if the cluster does not answer, rejects the kubeconfig, or was never created.

    ``option`` is the one that gave the kubeconfig, in place of the stack's file.
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError) as error:
        subject = f"cluster of {stack}"
        if option is not None:
            if not kubeconfig.exists():
                raise InputError(option, f"{kubeconfig} does not exist", "name a kubeconfig") from None
            raise unreachable_failure(stack, kubeconfig, error) from None
        if kubeconfig == Paths.here(stack).kubeconfig:
            if not kubeconfig.exists():
                raise Failure(subject, "does not exist yet", f"create it with `gpuform up {stack}`") from None
            fact = f"cannot be reached ({error_text(error)})"
            raise Failure(subject, fact, f"start it with `{start_command(stack)}`") from None
        if not kubeconfig.exists():
            fact = f"the kubeconfig {kubeconfig} does not exist"
            raise Failure(subject, fact, "correct cluster.kubeconfig") from None
        raise unreachable_failure(stack, kubeconfig, error) from None
