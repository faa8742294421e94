"""What can be declared (``gpus``, ``schema``, ``init``), and what follows (``render``, ``images``)."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.checkout.stacks import load_environment
from gpuform.cli.output import AsJson, OnlyStack, Stack, print_warnings, say, show, warn
from gpuform.reports import catalogue
from gpuform.stack import project, scaffold
from infra.config import price_list
from infra.inventory import read_keys
from infra.model.base.prices import PRICE_DATE
from infra.schema import schema_text
from infra.strict_yaml import short_path

if TYPE_CHECKING:
    from infra.plan.images import Artifact


def gpus(
    name: Annotated[
        str, typer.Argument(metavar="[FILTER]", help="Part of the name of a GPU or of a machine that has it.")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="The catalogue as JSON.")] = False,
) -> None:
    """List known GPUs with memory, MIG profiles, and the machines that have them, with prices."""
    entries = [entry for entry in catalogue.entries() if catalogue.is_named(entry, name)]
    if not entries:
        raise InputError("FILTER", f"no GPU or machine has {name!r} in its name", "`gpuform gpus` lists all")
    show(as_json, entries, [catalogue.table(entries)])
    if not as_json:
        say(f"prices: EC2 on-demand, us-east-1, {PRICE_DATE}; machines outside this list have no price")


def schema() -> None:
    """Print the JSON Schema of a stack file."""
    typer.echo(schema_text(), nl=False)


def new(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the new project.")],
    target: Annotated[
        str, typer.Option(help=f"Where the clusters will be: {', '.join(project.TARGETS)}.")
    ] = "local",
) -> None:
    """Write a project: Pulumi.yaml, a commented stack file, the pinned version, workflows.

    Creates nothing else, and writes only into a new or empty folder.
    """
    files = project.new_project(folder, target)
    say(f"{len(files)} files in {folder}: {', '.join(name for name in files if name[0] != '.')}")
    say(f"next: cd {folder}, and README.md; its stack file's comments mark what to change")


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
    vpc: Annotated[str, typer.Option(help="Id of an existing VPC; give its --subnet, too.")] = "",
    subnet: Annotated[
        list[str] | None, typer.Option(help="ZONE=ID of a private subnet of the VPC. May be repeated.")
    ] = None,
    example: Annotated[
        str, typer.Option(help=f"Stack to copy: {', '.join(scaffold.EXAMPLES)}; by default one of AWS.")
    ] = "",
) -> None:
    """Write a commented Pulumi.STACK.yaml from an example.

    For AWS it prints the commands for bucket, key and policies. Creates nothing at AWS, overwrites nothing.
    """
    subnets = dict(text.partition("=")[::2] for text in subnet or ())
    name = example or scaffold.example_name(stack)
    if name not in scaffold.EXAMPLES:
        raise InputError(
            "--example", f"{name!r} is no example", f"name one of {', '.join(scaffold.EXAMPLES)}"
        )
    given = {"--region": region, "--bucket": bucket, "--kms": kms, "--script": script, "--vpc": vpc}
    if not name.startswith("aws") and (unused := [option for option, value in given.items() if value]):
        raise InputError(unused[0], f"is for AWS, not for {name}", "leave it out")
    paths = Paths.here()
    file = paths.root / f"Pulumi.{stack}.yaml"
    for target in (file, *([script] if script else [])):
        if target.exists():
            raise InputError(str(target), "already exists", "edit it, or name another")
        writable.require(target.parent, "name a file in a writable folder")
    text = (paths.installation / f"Pulumi.{name}.yaml").read_text(encoding="utf-8")
    if not name.startswith("aws"):
        file.write_text(scaffold.copy_example(stack, text), encoding="utf-8")
        warn(f"wrote {file.name} from the example {name}: its comments mark what to change")
        return
    place = scaffold.StateLocation(
        stack=stack,
        region=region or scaffold.region_of(text),
        bucket=bucket or f"gpuform-{stack}-state",
        alias=kms or f"gpuform-{stack}",
    )
    commands = scaffold.render_script(place)
    file.write_text(scaffold.render_stack_file(stack, text, place, vpc, subnets), encoding="utf-8")
    if script:
        script.write_text(commands, encoding="utf-8")
        script.chmod(0o755)
    typer.echo(commands, nl=False)
    warn(f"wrote {file.name} from the example {name}: its comments mark what to change; nothing has")
    warn("been created yet, the commands above create its bucket, key and policies (docs/howto/state.md)")


class Controller(StrEnum):
    """GitOps controllers that apply a rendering."""

    argocd = "argocd"
    flux = "flux"


def render(
    stack: OnlyStack,
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder; created if missing.")],
    gitops: Annotated[
        Controller | None,
        typer.Option(
            help="Write the platform for this controller, and nothing else; see docs/howto/gitops.md."
        ),
    ] = None,
) -> None:
    """Write the resolved environment and every manifest; the output is deterministic."""
    from infra.plan import gitops as platform
    from infra.plan.render import render as files

    paths = Paths.here()
    env = load_environment(stack, paths)
    print_warnings(env)
    if gitops is None:
        rendered = files(env, read_keys(env, paths.root), price_list(env, paths.prices))
    else:
        platform.check(env)  # before its folder
        folder = _folder_in_repository(output) if gitops == Controller.flux else ""
        rendered = platform.files(env, gitops.value, folder)
    output = short_path(output)
    writable.require(output, "name a writable folder with -o")
    output.mkdir(parents=True, exist_ok=True)
    for name, text in rendered.items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        (output / name).write_text(text)
    say(f"{len(rendered)} files in {output}")
    if others := _other_files(output, rendered):
        origin = "from an earlier rendering or another source"
        say(f"other files in these folders: {len(others)}, {origin}, such as {', '.join(others[:4])}")
    if gitops is not None:
        say(f"not in these files, but done by `gpuform up {stack} --only nodes,layouts`:")
        for line in platform.remaining(env):
            say(f"- {line}")
        for line in platform.lost(env):
            warn(f"warning: done by neither: {line}")


def _folder_in_repository(output: Path) -> str:
    """The folder's path in its git checkout; Flux reads each stage from there."""
    present = next(folder for folder in (output.absolute(), *output.absolute().parents) if folder.is_dir())
    command = ["git", "-C", str(present), "rev-parse", "--show-toplevel"]
    try:
        found = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (subprocess.CalledProcessError, FileNotFoundError):
        fact = f"{output} is in no git checkout, and Flux needs its path in the repository"
        raise InputError("--output", fact, "name a folder in a checkout of Flux's repository") from None
    relative = output.resolve().relative_to(Path(found).resolve()).as_posix()
    return "" if relative == "." else relative


def _other_files(output: Path, rendered: Mapping[str, str]) -> list[str]:
    """Other files in the folders of the rendering; they are kept, and reported."""
    folders = {(output / name).parent for name in rendered}
    existing = {
        str(file.relative_to(output)) for folder in folders for file in folder.iterdir() if file.is_file()
    }
    return sorted(existing - set(rendered))


def images(stack: Stack = "local", as_json: AsJson = False) -> None:
    """List the charts, EKS add-ons and images that the cluster pulls, with the digest if pinned."""
    from infra.plan import images as planned

    env = load_environment(stack, Paths.here())
    print_warnings(env)
    pulled = planned.list_artifacts(env)
    for source in planned.unused_registries(env, pulled):
        warn(f"warning: registries.{source}: redirects nothing of this stack; is the name right?")
    show(as_json, {"stack": stack, "pulled": [asdict(image) for image in pulled]}, ())
    if as_json:
        return
    if env.is_simulated:
        warn("the nodes are simulated: they pull none of these images")
    for line in _image_lines(pulled):
        say(line)


def _image_lines(pulled: Sequence[Artifact]) -> list[str]:
    """One line each: kind, name and its name in the mirror, digest, users."""
    rows = [
        (item.kind, _image_name(item), item.digest or "unknown", ", ".join(item.used_by)) for item in pulled
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    return ["  ".join((*(row[i].ljust(widths[i]) for i in range(3)), row[3])) for row in rows]


def _image_name(image: Artifact) -> str:
    return image.name if image.pulled_as == image.name else f"{image.name} -> {image.pulled_as}"
