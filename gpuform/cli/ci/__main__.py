"""``python -m gpuform.cli.ci``: workflow steps that need more than one ``gpuform`` command."""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout.errors import InputError
from gpuform.cli.ci import comment as comments
from gpuform.cli.ci import github
from gpuform.cli.ci import issue as issues
from gpuform.cli.ci.github import GitHub
from gpuform.cli.main import ExitCodes
from gpuform.cli.output import Stack
from gpuform.reports.pull_request import marker
from infra.versions import PULUMI
from lab.toolchain.plugin import archive_url, plugin_sha256, sha256
from lab.toolchain.tool import this_platform

app = typer.Typer(
    cls=ExitCodes,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Steps of the workflows. Exit codes: 0 fine, 1 failed, 2 bad input.",
)


@app.command()
def summary(
    stack: Stack, file: Annotated[Path, typer.Argument(help="File written by `gpuform preview --summary`.")]
) -> None:
    """Add a preview's summary to the job's; if there is none, write one that says so."""
    if not file.is_file():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(
            f"{marker(stack)}\n### 🔴 `{stack}`: there is no preview, see the log of the run\n",
            encoding="utf-8",
        )
    with Path(github.require(os.environ, "GITHUB_STEP_SUMMARY")).open("a", encoding="utf-8") as job:
        job.write(file.read_text(encoding="utf-8"))


@app.command()
def acknowledged() -> None:
    """Print the acknowledged losses as options of `gpuform preview` and `up`, one word on each line."""
    for name in github.acknowledged_losses(github.read_event(os.environ)):
        typer.echo(f"--acknowledge\n{' '.join(name.split())}")


@app.command()
def plugins() -> None:
    """Print the engine plugins that the installed SDKs need, one on each line.

    Name, version, address and SHA-256.
    """
    for name in filter(lambda name: find_spec(f"pulumi_{name}"), ("aws", "kubernetes")):
        plugin, pinned = f"pulumi-resource-{name}", version(f"pulumi-{name}")
        checksum = plugin_sha256(plugin, pinned, github.require(os.environ, "GITHUB_TOKEN"))
        typer.echo(f"{name} {pinned} {archive_url(plugin, pinned)[0]} {checksum}")


@app.command()
def engine() -> None:
    """Print the address and the SHA-256 of the official engine."""
    file = f"pulumi-v{PULUMI}-{this_platform().replace('/', '-').replace('amd64', 'x64')}.tar.gz"
    checksum = sha256("pulumi", PULUMI, file, github.require(os.environ, "GITHUB_TOKEN"))
    typer.echo(f"https://get.pulumi.com/releases/sdk/{file} {checksum}")


@app.command()
def comment() -> None:
    """Comment the summaries of the preview workflow's run that triggered this run."""
    for line in comments.comment_summaries(GitHub(os.environ), github.read_event(os.environ)):
        typer.echo(line)


@app.command()
def issue(
    stack: Stack,
    folder: Annotated[Path, typer.Argument(help="Folder with drift.txt (output) and code (exit code).")],
) -> None:
    """Open, update or close the issue about a stack's drift."""
    code, text = _read_output(folder, "drift.txt")
    typer.echo(issues.update_drift_issue(GitHub(os.environ), stack, code, text, github.run_url(os.environ)))


@app.command()
def facts(
    folder: Annotated[Path, typer.Argument(help="Folder with facts.txt (output) and code (exit code).")],
) -> None:
    """Open, update or close the issue about facts and pins that are due for a check."""
    code, text = _read_output(folder, "facts.txt")
    typer.echo(issues.update_facts_issue(GitHub(os.environ), code, text, github.run_url(os.environ)))


def _read_output(folder: Path, name: str) -> tuple[int, str]:
    try:
        code = int((folder / "code").read_text(encoding="utf-8"))
        return code, (folder / name).read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        raise InputError(str(folder), f"has no files code and {name}", "see the previous step") from None


@app.command()
def nightly(
    result: Annotated[str, typer.Argument(help="Result of the tests: success, failure or cancelled.")],
) -> None:
    """Open, update or close the issue about the nightly tests."""
    if result not in ("success", "failure", "cancelled"):
        raise InputError(repr(result), "is not a job result", "give success, failure or cancelled")
    typer.echo(issues.update_nightly_issue(GitHub(os.environ), result, github.run_url(os.environ)))


if __name__ == "__main__":
    app()
