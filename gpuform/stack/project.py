"""A new project: Pulumi.yaml, the program that calls ours, a stack file, and workflows for pull requests."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

from gpuform import INSTALLATION
from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from gpuform.stack import scaffold


@dataclass(frozen=True)
class Target:
    """The example of a target, the name of the stack that is made of it, and the extras that it needs."""

    example: str
    stack: str
    extras: str = ""


TARGETS = MappingProxyType(
    {
        "local": Target("Pulumi.local.yaml", "local"),
        "aws": Target("Pulumi.aws-dev.yaml", "dev", "[aws,rehearse]"),
        "openstack": Target("Pulumi.openstack-dev.yaml", "dev", "[openstack]"),
        "hosts": Target("Pulumi.onprem-dev.yaml", "dev", "[hosts]"),
        "existing": Target("docs/examples/existing-cloud.yaml", "dev"),
    }
)
_PROJECT = """\
name: "{name}"
description: GPU Kubernetes clusters
runtime: python
"""
_PROGRAM = '''\
"""Creates what Pulumi.STACK.yaml declares."""

from gpuform.program import run

run()
'''
_SCHEMA = re.compile(r"^# yaml-language-server: .*\n#\n", re.MULTILINE)  # a path in a checkout
_IGNORED = """\
.gpuform/
.venv/
__pycache__/
clouds.yaml
secure.yaml
*-openrc.sh
"""
_README = """\
# {name}

GPU clusters, declared in `Pulumi.STACK.yaml` and created by gpuform, version in `requirements.txt`.

    python3 -m venv .venv && .venv/bin/pip install -r requirements.txt && . .venv/bin/activate
    gpuform {first}
    git init && git add . && git commit --message "New project" # the base of a preview
    gpuform preview --base HEAD # what an edit changes, costs and evicts
    gpuform rehearse # on a real control plane with simulated nodes

The workflows preview pull requests, update the stacks of the variable GPUFORM_STACKS on merge, and look for
drift at night{identity}.
To upgrade gpuform, change its version in `requirements.txt`, install it, and run `gpuform preview`.
"""
_WORKFLOWS = (
    *(f".github/workflows/{name}.yml" for name in ("preview", "comment", "up", "drift")),
    *(f".github/actions/{name}/action.yml" for name in ("setup", "engine")),
)
_OF_A_CHECKOUT = (
    ("make setup", "python3 -m venv .venv && .venv/bin/pip install --quiet -r requirements.txt"),
    (
        "python3 -m gpuform.checkout.stack_names",
        r"ls Pulumi.*.yaml | sed 's/^Pulumi\.//; s/\.yaml$//' | jq -Rnc '[inputs]'",
    ),
    (
        '.venv/bin/gpuform up "$STACK" --policy-pack policies',
        """policies=$(.venv/bin/python -c 'import gpuform; print(gpuform.INSTALLATION / "policies")')
          .venv/bin/gpuform up "$STACK" --policy-pack "$policies\"""",
    ),
)
"""What the workflows of a checkout do in another way in a project."""
_AWS_IDENTITY = re.compile(r"^      - name: identity\n(?:        .*\n)+", re.MULTILINE)


def new_project(folder: Path, target: str) -> list[str]:
    """Write a project for ``target`` into a new or empty folder; returns the names of its files.

    Raises InputError, with nothing written, for an unknown target or a folder that cannot be used.
    """
    if target not in TARGETS:
        raise InputError("--target", f"{target!r} is no target", f"name one of {', '.join(TARGETS)}")
    if folder.is_dir() and any(folder.iterdir()):
        raise InputError(str(folder), "is not empty", "name a new folder")
    writable.require(folder, "name a folder that can be created")
    kind = TARGETS[target]
    name = project_name(folder)
    pinned = f"gpuform{kind.extras}=={version('gpuform')}\n"
    identity = "" if target == "aws" else "; give them the credentials that a stack beyond this machine needs"
    first = "local up" if target == "local" else "render -o rendered"
    files = {
        **program_files(folder, target),
        "requirements.txt": pinned,
        ".gitignore": _IGNORED,
        "README.md": _README.format(name=name, first=first, identity=identity),
        **{path: _workflow(path, target) for path in _WORKFLOWS},
    }
    write(folder, files)
    return list(files)


def program_files(folder: Path, target: str) -> dict[str, str]:
    """What Pulumi needs, by name; the project has the folder's name."""
    kind = TARGETS[target]
    text = (INSTALLATION / kind.example).read_text(encoding="utf-8")
    text = text if target == "local" else scaffold.copy_example(kind.stack, text)
    return {
        "Pulumi.yaml": _PROJECT.format(name=project_name(folder)),
        f"Pulumi.{kind.stack}.yaml": _SCHEMA.sub("", text, count=1),
        "__main__.py": _PROGRAM,
    }


def write(folder: Path, files: dict[str, str]) -> None:
    """Pulumi.yaml comes last: a folder without it is no project."""
    for name in sorted(files, key="Pulumi.yaml".__eq__):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(files[name], encoding="utf-8")


def project_name(folder: Path) -> str:
    """The folder's name with the characters that Pulumi takes."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", folder.resolve().name)[:100] or "gpuform"


def _workflow(path: str, target: str) -> str:
    text = (INSTALLATION / path).read_text(encoding="utf-8")
    text = text if target == "aws" else _AWS_IDENTITY.sub("", text)
    for old, new in _OF_A_CHECKOUT:
        text = text.replace(old, new)
    return re.sub(r"hashFiles\(.*?\)", "hashFiles('requirements.txt')", text)
