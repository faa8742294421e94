"""The command line: output for people and for programs, and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import gpuform.usage.status
from gpuform.cli.main import app
from gpuform.usage.cluster_objects import Objects
from infra import versions
from tests.usage.top.played import node

pytestmark = pytest.mark.unit


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    return CliRunner()


def test_gpus_as_json_has_profiles_and_prices(run: CliRunner) -> None:
    result = run.invoke(app, ["gpus", "--json"])
    assert result.exit_code == 0
    gpus = {gpu["name"]: gpu for gpu in json.loads(result.stdout)}
    assert gpus["A100-PCIE-40GB"]["mig"]["1g.5gb"] == 7
    assert gpus["T4"]["mig"] == {}
    cheapest = next(m for m in gpus["T4"]["machines"] if m["name"] == "g4dn.12xlarge")
    assert cheapest == {
        "name": "g4dn.12xlarge",
        "seller": "ec2",
        "gpus": 4,
        "deprecated": False,
        "usd_per_hour": 3.912,
        "usd_per_gpu_hour": 0.978,
    }


def test_gpus_as_a_table_names_the_date_of_its_prices(run: CliRunner) -> None:
    result = run.invoke(app, ["gpus"])
    assert result.exit_code == 0
    assert "A100-PCIE-40GB" in result.stdout
    assert "2026-07-20" in result.stdout


def test_schema_is_the_committed_one(run: CliRunner) -> None:
    result = run.invoke(app, ["schema"])
    committed = Path(__file__).parents[2] / "docs/reference/environment.schema.json"
    assert result.stdout == committed.read_text()


def test_images_of_a_stack_are_lines_with_digest_or_unknown_and_json(run: CliRunner) -> None:
    result = run.invoke(app, ["images", "onprem-dev"])
    assert result.exit_code == 0
    lines = {line.split()[1]: line.split() for line in result.stdout.splitlines()}
    assert lines[f"nvcr.io/nvidia/gpu-operator:{versions.GPU_OPERATOR}"][2] == "unknown"
    name, _, digest = versions.READINESS_GATE_IMAGE.partition("@")
    assert lines[name][2] == digest
    found = json.loads(run.invoke(app, ["images", "onprem-dev", "--json"]).stdout)
    assert found["stack"] == "onprem-dev"
    assert len(found["pulled"]) == len(result.stdout.splitlines())


def test_a_cluster_that_was_never_made_is_told_as_that(run: CliRunner) -> None:
    result = run.invoke(app, ["status", "openstack-dev"])
    assert result.exit_code == 1
    assert "cluster of openstack-dev: the kubeconfig " in result.stderr
    assert "`gpuform up openstack-dev`" in result.stderr


@pytest.mark.parametrize(
    ("stack", "pool", "ends"),
    [
        (
            "aws-dev",
            "cpu",
            (
                "stack aws-dev is simulated on the embedded cluster of this machine; "
                "it has no nodes yet: `gpuform local nodes aws-dev` creates them"
            ),
        ),
        ("aws-dev", "g4dn-shared", "stack aws-dev is simulated on the embedded cluster of this machine"),
        ("local", "cpu", "scheduler, controllers, helm, Pulumi engine."),
    ],
)
def test_a_stack_that_is_only_played_here_is_told_as_that(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, stack: str, pool: str, ends: str
) -> None:
    monkeypatch.setattr(gpuform.usage.status, "fetch", lambda *_: Objects((node("n0", pool),)))
    result = run.invoke(app, ["status", stack])
    assert result.exit_code == 0
    assert "simulated here: the nodes (kwok)" in result.stdout
    assert result.stdout.endswith(f"{ends}\n")


UNKNOWN = (
    "error: STACK: unknown stack 'nowhere'; known: aws-dev, aws-prod, local, onprem-dev, openstack-dev\n"
)


@pytest.mark.parametrize(
    "command",
    [
        "status nowhere",
        "render nowhere -o {0}/out",
        "preview nowhere --offline",
        "drift nowhere",
        "destroy nowhere",
        "hosts check nowhere",
        "hosts verify nowhere",
        "local env nowhere",
        "local nodes nowhere",
    ],
)
def test_a_stack_that_is_not_there_is_refused_alike_with_those_that_are(
    run: CliRunner, tmp_path: Path, command: str
) -> None:
    result = run.invoke(app, command.format(tmp_path).split())
    assert (result.exit_code, result.stderr) == (2, UNKNOWN)
    assert list(tmp_path.iterdir()) == []


def test_render_writes_the_same_bytes_every_time(run: CliRunner, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        assert run.invoke(app, ["render", "local", "-o", str(tmp_path / folder)]).exit_code == 0
    first = {f.name: f.read_bytes() for f in (tmp_path / "one").iterdir()}
    assert first == {f.name: f.read_bytes() for f in (tmp_path / "two").iterdir()}
    nodes = list(yaml.safe_load_all(first["nodes.yaml"]))
    assert len(nodes) == 9


def test_what_lies_beside_a_rendering_is_told_and_left(run: CliRunner, tmp_path: Path) -> None:
    again = ["render", "local", "-o", str(tmp_path)]
    assert "other files" not in run.invoke(app, again).stdout
    names = [f"{number}.yaml" for number in range(5)]
    for name in names:
        (tmp_path / name).touch()
    said = run.invoke(app, again).stdout
    assert (
        "other files in these folders: 5, from an earlier rendering or another source, "
        "such as 0.yaml, 1.yaml, 2.yaml, 3.yaml\n" in said
    )
    assert all((tmp_path / name).exists() for name in names)


@pytest.mark.parametrize("command", [["up"], ["start"], ["stop"], ["env"]])
@pytest.mark.parametrize("below", ["", "/x"])
def test_a_state_that_cannot_be_a_folder_is_bad_input(
    run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], below: str
) -> None:
    (tmp_path / "file").write_text("kept")
    monkeypatch.setenv("GPUFORM_STATE", f"{tmp_path}/file{below}")
    result = run.invoke(app, ["local", *command])
    if command == ["stop"] and below:
        assert result.exit_code == 0  # stopping nothing is fine
    else:
        assert result.exit_code == 2
        file = f"{tmp_path}/file is a file" if below else "is a file"
        assert result.stderr == (
            f"error: {tmp_path}/file{below}: {file}, not a folder; "
            "make it a writable folder, or set GPUFORM_STATE to one\n"
        )
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("below", ["", "/x"])
def test_rendering_into_a_file_is_bad_input(run: CliRunner, tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("kept")
    result = run.invoke(app, ["render", "local", "-o", f"{tmp_path}/file{below}"])
    assert result.exit_code == 2
    assert f"error: {tmp_path}/file{below}: " in result.stderr
    assert "is a file, not a folder; name a writable folder with -o" in result.stderr
    assert (tmp_path / "file").read_text() == "kept"


def test_a_folder_that_cannot_be_made_is_bad_input(run: CliRunner) -> None:
    result = run.invoke(app, ["render", "local", "-o", "/proc/nowhere"])
    assert result.exit_code == 2
    assert "error: /proc/nowhere: cannot be written (" in result.stderr


def test_any_other_failed_system_call_is_a_line_and_no_traceback(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "out" / "nodes.yaml").mkdir(parents=True)
    result = run.invoke(app, ["render", "local", "-o", f"{tmp_path}/out"])
    assert result.exit_code == 1
    assert result.stderr == f"failed: {tmp_path}/out/nodes.yaml: Is a directory\n"


def test_a_failed_system_call_without_a_file_says_what_it_knows(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr("gpuform.cli.machine.findings", refused)
    result = run.invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert result.stderr == "failed: ConnectionRefusedError: Connection refused\n"


def test_a_reader_that_goes_away_is_no_failure_of_ours(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in ``gpuform gpus | head -1``."""

    def gone(*_: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("gpuform.cli.machine.findings", gone)
    result = run.invoke(app, ["doctor"])
    assert result.stderr == ""


def test_status_of_a_cluster_that_is_not_there_fails_and_says_how_to_start_it(run: CliRunner) -> None:
    result = run.invoke(app, ["status", "local"])
    assert result.exit_code == 1
    assert "gpuform local start" in result.stderr
