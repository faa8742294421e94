"""The command line: its commands, and their exit codes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpuform.checkout.errors import Failure, InputError
from gpuform.cli import adopt, change, check, hosts, local, machine, observe, plan, preview, up
from gpuform.cli.output import JSON, report_errors


class Commands(TyperGroup):
    """Sets every command's exit code: 2 bad input, 1 failed, 130 Ctrl-C; the reason goes to stderr."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
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


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="GPU Kubernetes clusters as code. Exit codes: 0 success, 1 failure, 2 bad input, 3 drift.",
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"gpuform {version('gpuform')}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.command()(machine.doctor)
app.command(hidden=True)(machine.preflight)
app.add_typer(local.app, name="local")
for command in (
    observe.status,
    observe.top,
    observe.report,
    plan.gpus,
    plan.render,
    check.check,
    adopt.adopt,
    plan.images,
    preview.preview,
    up.up,
    change.drift,
    change.recover,
    change.destroy,
    preview.rehearse,
    plan.new,
    plan.init,
    plan.schema,
):
    app.command()(command)
app.add_typer(hosts.app, name="hosts")
app.add_typer(observe.health, name="health")
app.add_typer(machine.prices, name="prices")
app.add_typer(machine.simulate, name="simulate")
app.add_typer(machine.toolchain, name="toolchain")


def main() -> None:
    app()
