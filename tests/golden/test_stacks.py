"""Every stack rendered, byte for byte.

A file is stored in full, or as a ``.diff`` with the SHA-256 of the full text in front if that is shorter by a
quarter: each document against the most similar one before it in the file, or the file against that of one
stack (Prometheus rules rule by rule). Of a program in a ConfigMap only the SHA-256 is stored.
GPUFORM_UPDATE_GOLDEN=1 writes the files again; review the diff before committing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from difflib import unified_diff
from pathlib import Path

import pytest

from infra.config import load
from infra.inventory import read_keys
from infra.plan.program import SOURCE
from infra.plan.render import render
from infra.strict_yaml import load_all
from tests.plan.same_bytes import outputs

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
GOLDEN = Path(__file__).parent
ELSEWHERE = ("dashboards.yaml",)
"""Files that are reviewed elsewhere: tests/plan/dashboards has each dashboard once."""
STACKS = ("local", "aws-dev", "aws-prod", "openstack-dev", "onprem-dev")
IN_FULL = "aws-prod"
RULES = "monitoring-rules.yaml"
_DOCUMENT = re.compile(r"^(?=---$)", re.MULTILINE)
_PROGRAM = re.compile(r"^  (\w+\.py): \|\n((?:    .*\n|\n)+)", re.MULTILINE)


def test_every_stack_is_here() -> None:
    assert {path.name for path in ROOT.glob("Pulumi.*.yaml")} == {f"Pulumi.{stack}.yaml" for stack in STACKS}


@pytest.fixture(scope="module")
def in_full() -> dict[str, str]:
    return rendered(IN_FULL)


@pytest.mark.parametrize("stack", STACKS)
def test_the_stack_is_what_was_reviewed(in_full: dict[str, str], stack: str) -> None:
    folder, files = GOLDEN / stack, rendered(stack)
    name, others = load(ROOT / f"Pulumi.{stack}.yaml").name, {}
    if stack != IN_FULL:
        others = {file: text.replace(IN_FULL, name) for file, text in in_full.items()}
    files = short(files, others)
    if os.environ.get("GPUFORM_UPDATE_GOLDEN"):
        folder.mkdir(exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    assert {path.name for path in folder.iterdir()} == set(files)
    for name, text in files.items():
        assert (folder / name).read_bytes() == text.encode(), f"{name} differs from {folder}"


def rendered(stack: str) -> dict[str, str]:
    env = load(ROOT / f"Pulumi.{stack}.yaml")
    files = render(env, read_keys(env))
    return {name: _PROGRAM.sub(_sum, text) for name, text in files.items() if name not in ELSEWHERE}


def _sum(found: re.Match[str]) -> str:
    """Checksum line of a program, after checking that it is the file of this name."""
    file = SOURCE / found[1]
    assert re.sub("^    ", "", found[2], flags=re.MULTILINE) == file.read_text(encoding="utf-8"), file
    return f"  {found[1]}: sha256 {hashlib.sha256(file.read_bytes()).hexdigest()}\n"


def short(files: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    """Each file, or what differs if that is shorter by a quarter."""
    found = {}
    for name, text in files.items():
        lines_of = _rules if name == RULES else str.splitlines
        lines = _repetitions(text)
        if name in others:
            lines = min(_differences(lines_of(others[name]), lines_of(text), 1), lines, key=len)
        if _shorter(lines, text.splitlines()):
            digest = hashlib.sha256(text.encode()).hexdigest()
            found[f"{name}.diff"] = "\n".join([f"sha256 {digest}", *lines, ""])
        else:
            found[name] = text
    return found


def _differences(old: Sequence[str], new: Sequence[str], context: int) -> list[str]:
    lines = list(unified_diff(old, new, n=context, lineterm=""))[2:]
    return ["@@" if line.startswith("@@") else line for line in lines]  # the SHA-256 says where


def _repetitions(text: str) -> list[str]:
    """Each document as what differs from the most similar one before it."""
    parts, found = [part.splitlines() for part in _DOCUMENT.split(text)], list[str]()
    for index, part in enumerate(parts):
        likes = [
            [f"like document {number}:", *(item for item in _differences(before, part, 0) if item != "@@")]
            for number, before in enumerate(parts[:index])
        ]
        best = min(likes, key=len, default=part)
        found += best if _shorter(best, part) else part
    return found


def _shorter(lines: Sequence[str], full: Sequence[str]) -> bool:
    return 4 * len(lines) < 3 * len(full)


def _rules(text: str) -> list[str]:
    """The document around the groups of rules, each group's head, and each rule, as one line of JSON."""
    found = []
    for document in load_all(text):
        groups = document["spec"].pop("groups")
        found.append(json.dumps(document))
        for group in groups:
            rules = group.pop("rules")
            found += [json.dumps(item) for item in (group, *rules)]
    return found


@pytest.mark.tools
def test_the_bytes_do_not_depend_on_the_process() -> None:
    script = (
        "import hashlib, pathlib; from infra.config import load; from infra.plan.render import render;"
        "files = render(load(pathlib.Path('Pulumi.aws-prod.yaml')));"
        "print(hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest())"
    )
    assert len(outputs(script)) == 1
