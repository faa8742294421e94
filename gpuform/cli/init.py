"""``gpuform init``: the file of a new stack on AWS, and the commands for what its state needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli.output import warn


def init(
    stack: Annotated[str, typer.Argument(help="Name of the new stack: Pulumi.STACK.yaml.")],
    region: Annotated[str | None, typer.Option(help="AWS region; that of the example by default.")] = None,
    bucket: Annotated[
        str | None, typer.Option(help="Bucket for the state; gpuform-STACK-state by default.")
    ] = None,
    kms: Annotated[
        str | None, typer.Option(help="Alias of the key, without alias/; gpuform-STACK by default.")
    ] = None,
    script: Annotated[
        Path | None, typer.Option(help="File for the commands, besides printing them; never overwritten.")
    ] = None,
) -> None:
    """Write a commented Pulumi.STACK.yaml, and print the aws commands for its bucket, key and policies.

    Creates nothing at AWS and overwrites nothing.
    """
    from gpuform.stack import scaffold

    paths = Paths.here()
    file = paths.root / f"Pulumi.{stack}.yaml"
    for target in (file, *([script] if script else [])):
        if target.exists():
            raise InputError(str(target), "already exists", "edit it, or name another")
        writable.require(target.parent, "name a file in a writable folder")
    text = _example(paths, name := scaffold.example(stack))
    place = scaffold.Place(
        stack=stack,
        region=region or scaffold.region_of(text),
        bucket=bucket or f"gpuform-{stack}-state",
        alias=kms or f"gpuform-{stack}",
    )
    commands = scaffold.script(place)
    file.write_text(scaffold.stack_file(stack, text, place), encoding="utf-8")
    if script:
        script.write_text(commands, encoding="utf-8")
        script.chmod(0o755)
    typer.echo(commands, nl=False)
    warn(f"wrote {file.name} from the example {name}: its comments mark what to change; nothing has")
    warn("been created yet, the commands above create its bucket, key and policies (docs/howto/state.md)")


def _example(paths: Paths, name: str) -> str:
    from gpuform.engine.environment import INSTALLED

    files = [folder / f"Pulumi.{name}.yaml" for folder in (paths.root, INSTALLED)]
    return next(file.read_text(encoding="utf-8") for file in files if file.is_file())
