"""The scripts of the workflows, run as a runner does, with a `gpuform` stub that logs its arguments."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gpuform.checkout.stack_names import list_stack_names
from tests.cli.ci.workflows import JOBS, ROOT, load, steps

pytestmark = pytest.mark.tools
SHELL = ("bash", "--noprofile", "--norc", "-e")  # GitHub's default for a step without ``shell``
SHA = "0123456789abcdef0123456789abcdef01234567"
NOTES = """#!/bin/sh
printf '%s\\n' "$(basename "$0") $*" >> "$NOTED"
[ "$1 $2" != "local env" ] || echo 'export PULUMI_STACK=made'
echo "printed by $1"
exit "${CODE:-0}"
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    binaries = tmp_path / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("gpuform", "pulumi"):
        (binaries / name).write_text(NOTES)
        (binaries / name).chmod(0o755)
    (binaries / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    (binaries / "python").chmod(0o755)
    return tmp_path


def script(workflow: str, job: str, name: str) -> str:
    return next(str(step["run"]) for step in JOBS[workflow, job]["steps"] if step.get("name") == name)


def play(text: str, folder: Path, event: object = None, **env: str) -> tuple[int, list[str]]:
    """Exit code, and calls logged by the stubs."""
    noted, temporary = folder / "noted", folder / "temp"
    noted.unlink(missing_ok=True)
    temporary.mkdir(exist_ok=True)
    (folder / "event.json").write_text(json.dumps(event or {}))
    given = {
        "PATH": f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "NOTED": str(noted),
        "RUNNER_TEMP": str(temporary),
        "GITHUB_EVENT_PATH": str(folder / "event.json"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "GITHUB_PATH": str(folder / "path"),
        **env,
    }
    done = subprocess.run([*SHELL, "-c", text], cwd=folder, env=given, capture_output=True, text=True)
    return done.returncode, noted.read_text().splitlines() if noted.exists() else []


def test_every_script_can_be_parsed() -> None:
    for where, step in steps():
        if "run" in step:
            done = subprocess.run(["bash", "-n", "-c", step["run"]], capture_output=True, text=True)
            assert done.returncode == 0, f"{where}: {done.stderr}"


def test_stacks_become_a_matrix(checkout: Path) -> None:
    text = script("preview", "stacks", "find the stacks")
    (checkout / "Pulumi.yaml").touch()
    (checkout / "Pulumi.one.yaml").touch()
    assert play(text, checkout)[0] == 0
    assert (checkout / "output").read_text() == f"stacks={json.dumps(list_stack_names(checkout))}\n"
    (checkout / "Pulumi.a b.yaml").touch()
    assert play(text, checkout)[0] == 1


LABELLED = {"pull_request": {"labels": [{"name": "acknowledge: prod $(touch x) eks"}, {"name": "bug"}]}}


@pytest.mark.parametrize("job", ["offline", "live"])
@pytest.mark.parametrize("code", ["0", "1"])
def test_a_preview_is_told_what_is_acknowledged(checkout: Path, job: str, code: str) -> None:
    ended, noted = play(
        script("preview", job, "preview"), checkout, LABELLED, CODE=code, STACK="aws-dev", BASE=SHA
    )
    assert ended == int(code)
    against = f" --offline --base {SHA}" if job == "offline" else ""
    words = f"preview aws-dev{against} --summary {checkout}/temp/summary.md"
    assert noted == [f"gpuform {words} --acknowledge prod $(touch x) eks"]
    assert not (checkout / "x").exists()


@pytest.mark.parametrize("code", ["0", "1"])
def test_an_up_asks_the_account_first_and_holds_the_policies(checkout: Path, code: str) -> None:
    ended, noted = play(script("up", "up", "up"), checkout, LABELLED, STACK="aws-dev", CODE=code)
    words = "up aws-dev --policy-pack policies --acknowledge prod $(touch x) eks"
    assert (ended, noted) == (int(code), [f"gpuform {words}"])


@pytest.mark.parametrize("code", ["0", "1", "3"])
def test_how_drift_ended_is_kept(checkout: Path, code: str) -> None:
    ended, noted = play(script("drift", "drift", "drift"), checkout, STACK="aws-dev", CODE=code)
    assert (ended, noted) == (0, ["gpuform drift aws-dev"])
    assert (checkout / "temp" / "drift" / "code").read_text() == f"{code}\n"
    assert (checkout / "temp" / "drift" / "drift.txt").read_text() == "printed by drift\n"


@pytest.mark.parametrize("forged", ["", "engine", "aws"])
def test_only_downloads_with_the_stated_checksum_are_used(checkout: Path, forged: str) -> None:
    stated = {}
    for name in ("engine", "aws", "kubernetes"):
        archive = checkout / f"{name}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(checkout / ".venv" / "bin" / "pulumi", "pulumi/pulumi")
        checksum = hashlib.sha256(b"another" if name == forged else archive.read_bytes()).hexdigest()
        stated[name] = f"file://{archive} {checksum}"
    message = f"aws 1.2.3 {stated['aws']}\\nkubernetes 4.5.6 {stated['kubernetes']}"
    python = f'#!/bin/sh\n[ "$3" = engine ] && echo "{stated["engine"]}" || printf \'{message}\\n\'\n'
    (checkout / ".venv" / "bin" / "python").write_text(python)
    (action,) = load(ROOT / ".github" / "actions" / "engine" / "action.yml")["runs"]["steps"]
    ended, noted = play(f"set -o pipefail\n{action['run']}", checkout)  # as GitHub does for ``shell: bash``
    if forged:
        assert ended != 0
        assert noted == []
        assert (checkout / "temp" / "pulumi").exists() == (forged == "aws")
        return
    assert ended == 0
    file = checkout / "temp" / "archive.tar.gz"
    assert noted == [
        f"pulumi plugin install resource aws 1.2.3 --file {file}",
        f"pulumi plugin install resource kubernetes 4.5.6 --file {file}",
    ]
    engine, *folders = [Path(line) for line in (checkout / "path").read_text().splitlines()]
    assert engine == checkout / "temp" / "pulumi"
    assert [folder.parent for folder in folders] == [checkout / ".pulumi" / "plugins"] * 2
    assert [folder.name for folder in folders] == [
        f"resource-{line.split()[4]}-v{line.split()[5]}" for line in noted
    ]
