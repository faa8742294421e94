"""The command line: its commands, and their exit codes.

A command's module is imported when it is called, with all that it needs; the list of commands needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from gpuform.checkout.errors import Failure, InputError
from gpuform.cli import JSON

_HIDDEN = ("preflight",)
COMMANDS: Mapping[str, tuple[str, str]] = {
    "doctor": ("machine", "Check this machine and a stack's account; print fixes."),
    "preflight": (
        "machine",
        "Check a stack's account; `pulumi up` by hand does so before it starts.",
    ),
    "status": (
        "observe",
        "Show pools, nodes, the GPU resources that they offer, the pods that use them, queues and cost.",
    ),
    "top": (
        "observe",
        "Show the requested and used GPUs of each node, GPU, slice and pod; the unit is GPUs.",
    ),
    "report": ("observe", "Write an HTML page with the pods on each GPU, utilization, alerts and cost."),
    "gpus": (
        "plan",
        "List known GPUs with memory, MIG profiles, and the machines that have them, with prices.",
    ),
    "render": ("plan", "Write the resolved environment and every manifest; the output is deterministic."),
    "plan": (
        "planner",
        "Compute the cheapest way to share GPUs for all demands, and prove how much less is impossible.",
    ),
    "check": (
        "check",
        "Judge Kubernetes manifests against the stack's pools: resources, taints, selectors, room, queues.",
    ),
    "adopt": ("adopt", "Declare a cluster that others run, as it is now; list what cannot be declared."),
    "images": (
        "plan",
        "List the charts, EKS add-ons and images that the cluster pulls, with the digest if pinned.",
    ),
    "preview": (
        "preview",
        "Show what `up` would change, which pods it evicts, what it costs, and which policies it breaks.",
    ),
    "up": ("up", "Make the stack match its file, after a preflight of the account or project."),
    "drift": (
        "change",
        "Show what was changed by hand since the last `up`; without --repair, nothing is changed.",
    ),
    "recover": ("change", "Clean up after an interrupted update; shows a plan, asks, then applies it."),
    "destroy": (
        "change",
        "Delete everything that a stack created, in a safe order; shows a plan and asks.",
    ),
    "rehearse": (
        "preview",
        "Simulate a stack on this machine; show its nodes, their cost, and pods that stay pending.",
    ),
    "whatif": (
        "whatif",
        "Replay a trace of jobs against the stack's pools, in a model, under several placement policies.",
    ),
    "new": ("plan", "Write a project: Pulumi.yaml, a commented stack file, the pinned version, workflows."),
    "init": ("plan", "Write a commented Pulumi.STACK.yaml from an example."),
    "schema": ("plan", "Print the JSON Schema of a stack file."),
    "local": ("local", "Start, stop and inspect the control planes on this machine, one per stack."),
    "hosts": ("hosts", "Prepare, check and inspect own hosts over ssh."),
    "health": ("observe", "Show nodes with a broken GPU, and their repair tickets."),
    "prices": ("machine", "Refresh the dated price list that all costs use."),
    "simulate": ("machine", "Inject and clear hardware faults of simulated nodes."),
    "toolchain": ("machine", "Build, list and clean the pinned tools."),
}
"""Module and first sentence of each command, in the order of ``--help``."""


class ExitCodes(TyperGroup):
    """Sets every command's exit code: 2 bad input, 1 failed, 130 Ctrl-C; the reason goes to stderr."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            from gpuform.cli.output import report_errors

            report_errors(error, ctx.meta.get(JSON) is True)
            raise typer.Exit(2) from None
        except Failure as error:
            typer.echo(f"failed: {error}", err=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            typer.echo("interrupted; run the same command again to continue", err=True)
            raise typer.Exit(130) from None
        except BrokenPipeError:
            raise  # the reader of our output has gone; typer ends quietly
        except OSError as error:
            subject = error.filename if error.filename is not None else type(error).__name__
            typer.echo(f"failed: {subject}: {error.strerror or error}", err=True)
            raise typer.Exit(1) from None


class Commands(ExitCodes):
    """The commands as ``--help`` lists them, of which nothing is imported before one is called."""

    def __init__(self, **arguments: Any) -> None:
        listed = {
            name: TyperCommand(name, help=text, short_help=text, hidden=name in _HIDDEN)
            for name, (_, text) in COMMANDS.items()
        }
        super().__init__(**{**arguments, "commands": listed})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command and load(str(name)), rest

    @cached_property
    def loaded(self) -> dict[str, Any]:
        """Every command, with its options; imports all modules."""
        return {name: load(name) for name in COMMANDS}


def load(name: str) -> Any:
    """The command of that name, or the group."""
    found = getattr(import_module(f"gpuform.cli.{COMMANDS[name][0]}"), name)
    if isinstance(found, typer.Typer):
        found.rich_markup_mode = None
        group = get_group(found)
        group.name = name
        for command in group.commands.values():  # else cut to one line
            command.short_help = (command.help or "").partition("\n\n")[0]
        return group
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name, hidden=name in _HIDDEN)(found)
    return get_command(alone)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # its import takes longer than all else that a help text needs
    help="GPU Kubernetes clusters as code. Exit codes: 0 success, 1 failure, 2 bad input, 3 drift.",
)


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"gpuform {version('gpuform')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    app()
