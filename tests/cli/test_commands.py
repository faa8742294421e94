"""The command line: output for people and for programs, and exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import gpuform.usage.cluster_objects
import gpuform.usage.prometheus
from gpuform.cli.main import Commands, app
from gpuform.usage.cluster_objects import LiveObjects
from infra import versions
from tests.fakes.client import kubeconfig
from tests.usage.top.played import node

pytestmark = pytest.mark.unit
PLAYED = "stack aws-dev is simulated on its own control plane on this machine"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("GPUFORM_STATE", str(tmp_path / "state"))
    return CliRunner()


def test_a_command_starts_without_the_clients_of_clusters_and_clouds() -> None:
    code = "import sys, gpuform.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"httpx", "botocore", "openstack", "pulumi"} & set(done.stdout.split())


def test_gpus_as_json_has_profiles_and_prices(run: CliRunner) -> None:
    result = run.invoke(app, ["gpus", "--json"])
    assert result.exit_code == 0
    gpus = {gpu["name"]: gpu for gpu in json.loads(result.stdout)}
    assert (gpus["A100-PCIE-40GB"]["mig"]["1g.5gb"], gpus["T4"]["mig"]) == (7, {})
    four = {"name": "g4dn.12xlarge", "seller": "ec2", "gpus": 4, "deprecated": False}
    assert {**four, "usd_per_hour": 3.912, "usd_per_gpu_hour": 0.978} in gpus["T4"]["machines"]


def test_gpus_as_a_table_names_the_date_of_its_prices(run: CliRunner) -> None:
    result = run.invoke(app, ["gpus"])
    assert result.exit_code == 0
    assert "A100-PCIE-40GB" in result.stdout
    assert "2026-07-20" in result.stdout


@pytest.mark.parametrize("columns", ["", "60"])
def test_a_pipe_is_as_wide_as_columns_says(columns: str) -> None:
    code = "from gpuform.cli.main import main; main()"
    env = {**os.environ, "COLUMNS": columns}
    done = subprocess.run(
        [sys.executable, "-c", code, "gpus", "a100"], capture_output=True, text=True, env=env
    )
    *table, _ = done.stdout.splitlines()
    assert (max(map(len, table)) > 60) == (columns == "")


@pytest.mark.parametrize(
    ("part", "names"), [("h200", ["GH200", "H200"]), ("p4d", ["A100-SXM4-40GB"]), ("tesla-t4", ["T4"])]
)
def test_gpus_are_found_by_a_part_of_a_name(run: CliRunner, part: str, names: list[str]) -> None:
    found = [gpu["name"] for gpu in json.loads(run.invoke(app, ["gpus", part, "--json"]).stdout)]
    assert [name for name in found if name in names] == names
    assert len(found) < 5


def test_the_version_and_the_short_help_are_there(run: CliRunner) -> None:
    assert run.invoke(app, ["--version"]).stdout == f"gpuform {version('gpuform')}\n"
    assert "--install-completion" in run.invoke(app, ["-h"]).stdout
    for words in (["status"], ["hosts", "apply"], ["health", "tickets"]):
        short, long = (run.invoke(app, [*words, option]) for option in ("-h", "--help"))
        assert (short.exit_code, short.stdout) == (0, long.stdout)
        assert "Usage: " in short.stdout
    for words in ([], ["local"]):
        assert "..." not in run.invoke(app, [*words, "-h"]).stdout.partition("\n")[2]  # nothing is cut


def test_the_list_of_commands_says_what_each_says_itself_and_imports_none() -> None:
    group = get_command(app)
    assert isinstance(group, Commands)
    first = {name: (one.help or "").split("\n\n")[0] for name, one in group.loaded.items()}
    assert first == {name: one.help for name, one in group.commands.items()}
    script = "import sys, gpuform.cli.main as m; m.app(['-h'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()[-1].split()
    assert not [
        name for name in modules if name.startswith(("pydantic", "lab", "infra.plan", "yaml", "rich"))
    ]


@pytest.mark.parametrize("words", ["upp", "local upp"])
def test_a_wrong_command_hears_the_nearest(run: CliRunner, words: str) -> None:
    assert "Did you mean 'up'" in run.invoke(app, words.split()).stderr


def test_a_control_plane_that_does_not_run_as_json(run: CliRunner) -> None:
    result = run.invoke(app, ["local", "status", "--json"])
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert not found["ready"]
    assert {"name": "etcd", "pid": None, "running": False, "rss_bytes": 0, "port": None} in found["members"]


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


@pytest.mark.parametrize(
    ("stack", "pool", "ends"),
    [
        ("aws-dev", "cpu", f"{PLAYED}; it has no nodes yet: `gpuform local nodes aws-dev` creates them"),
        ("aws-dev", "g4dn-shared", PLAYED),
        ("local", "cpu", "real: control plane, Helm, Pulumi engine"),
    ],
)
def test_a_stack_that_is_only_played_here_is_told_as_that(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, stack: str, pool: str, ends: str
) -> None:
    objects = LiveObjects((node("n0", pool),))
    monkeypatch.setattr(gpuform.usage.cluster_objects, "fetch_objects", lambda *_: objects)
    result = run.invoke(app, ["status", stack])
    assert result.exit_code == 0
    assert "simulated: nodes, GPU operator components" in result.stdout
    assert result.stdout.endswith(f"{ends}\n")


STACKS = "known: aws-dev, aws-prod, local, onprem-dev, openstack-dev"
FOLDER = "a file, not a folder; make it a writable folder, or set GPUFORM_STATE to one"
BAD = {
    **{
        f"{command} nowhere": f"STACK: unknown stack 'nowhere'; {STACKS}"
        for command in (
            *("status", "top", "report", "preview", "up", "drift", "recover", "destroy", "doctor"),
            *("rehearse", "images", "hosts apply", "hosts check", "hosts verify", "local env", "local nodes"),
            *("local start", "local up", "local status", "simulate fault node-0 --xid 79 --stack"),
        )
    },
    "render nowhere -o {0}/out": f"STACK: unknown stack 'nowhere'; {STACKS}",
    "up aws-prd": f"STACK: unknown stack 'aws-prd'; did you mean aws-prod? {STACKS}",
    "hosts apply local": "cluster.kind: stack local has embedded",
    "hosts check local": "cluster.kind: stack local has embedded",
    "hosts status local": "cluster.kind: stack local has embedded",
    "hosts verify local --backend ssh": "--backend: the nodes of a cluster of kind embedded are not reached "
    "by ssh; use --backend kubectl",
    "gpus nothing": "FILTER: no GPU or machine has 'nothing' in its name; `gpuform gpus` lists all",
    "top --pool none": "--pool: unknown pool 'none'; known: t4-shared, a100-mig, a100-7, a100-whole, v100, ",
    "report -o {0}": "{0}: is a folder; name a writable file with -o",
    "preview local --summary {0}": "{0}: is a folder; name a writable file with --summary",
    "rehearse local --report {0}": "{0}: is a folder; name a writable file with --report",
    "rehearse local --short g4dn.xlarge": "--short: Karpenter launches no nodes for stack local; leave",
    "rehearse local --qps 50": "--qps: no workload of the rehearsal has scale, so none follows",
    "rehearse local --from {0}/none": "{0}/none: does not exist",
    "rehearse local --from {0}/file": "{0}/file",
    "rehearse local --from {0}/file --context a": "--context: {0}/file is no kubeconfig; leave it out",
    "rehearse local --report /dev/null/x": "/dev/null: is a file, not a folder; name a writable file",
    "rehearse local --timeout 0": "--timeout: 0 is not a valid timeout; give seconds, for example 300",
    "rehearse local --timeout nan": "--timeout: nan is not a valid timeout; give seconds, for example 300",
    "rehearse local --fast": "--fast: was removed; leave it out: Karpenter's AWS controller launches",
    "render local -o {0}/file": "{0}/file: is a file, not a folder; name a writable folder with -o",
    "render local -o {0}/file/x": "{0}/file/x: {0}/file is a file, not a folder; name a writable folder ",
    "render local -o /proc/nowhere": "/proc/nowhere: cannot be written (",
    "render local --gitops argocd -o {0}/out": "--gitops: the platform of local is applied on this machine",
    "render local --gitops flux -o {0}/out": "--gitops: the platform of local is applied on this machine",
    "render aws-dev --gitops flux -o {0}/out": "--output: {0}/out is in no git checkout, and Flux needs",
    "up local --only nodes": "--only: local is on this machine, where `gpuform up` applies the platform",
    "up aws-dev --only layouts": "--only: 'layouts' is not known; write --only nodes,layouts, or --only",
    "preview aws-dev --offline --only nodes": "--only: is for live previews: others show the whole platform",
    "prices refresh west": "REGION: 'west' is not an AWS region; write it as us-west-2",
}


@pytest.mark.parametrize("command", BAD)
def test_bad_input_is_refused_before_anything_is_done(run: CliRunner, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("kept")
    result = run.invoke(app, command.format(tmp_path).split())
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith(f"error: {BAD[command].format(tmp_path)}")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.parametrize("options", ["", "--offline"])
def test_a_preview_of_an_invalid_file_is_bad_input_and_has_its_summary(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: str
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    environment = {"name": "bad", "cluster": {"kind": "embeded"}, "pools": []}
    (tmp_path / "Pulumi.bad.yaml").write_text(yaml.dump({"config": {"gpuform:environment": environment}}))
    monkeypatch.chdir(tmp_path)
    summary = tmp_path / "summary.md"
    command = ["preview", "bad", "--json", "--summary", str(summary), *options.split()]
    result = run.invoke(app, command)
    assert result.exit_code == 2
    assert [error["path"] for error in json.loads(result.stdout)["errors"]] == ["cluster.kind", "pools"]
    assert "### 🔴 `bad`: cannot be previewed: " in summary.read_text()


@pytest.mark.parametrize("command", ["status", "doctor", "preview", "top", "images"])
def test_all_errors_of_a_stack_file_are_printed_and_listed(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\n")
    pool = "{name: a, machine: m6i.xlarge, nodes: no}"
    lines = "name: odd", "cluster: {kind: embedded}", "kube: 1", f"pools: [{pool}]"
    file = tmp_path / "Pulumi.odd.yaml"
    file.write_text("\n    ".join(("config:\n  gpuform:environment:", *lines)))
    monkeypatch.chdir(tmp_path)
    result = run.invoke(app, [command, "odd", "--json"])
    assert result.exit_code == 2
    first, second, number = result.stderr.splitlines()
    assert first.startswith("Pulumi.odd.yaml:5:5: kube: unknown key; known: name, ")
    assert second == (
        'Pulumi.odd.yaml:6:44: pools[0] "a": nodes: holds the truth value false; give a whole number'
    )
    assert number == "2 errors"
    assert json.loads(result.stdout)["errors"][1] == {
        "file": "Pulumi.odd.yaml", "line": 6, "column": 44, "name": "a", "path": "pools[0].nodes",
        "fact": "holds the truth value false", "remedy": "give a whole number",
    }  # fmt: skip
    file.write_text(file.read_text().replace("    kube: 1\n", ""))
    result = run.invoke(app, [command, "odd"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == second.replace(":6:", ":5:") + "\n1 error\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        *(
            (f"{command} {stack}", f"does not exist yet; create it with `gpuform up {stack}`")
            for command in ("status", "top", "report")
            for stack in ("local", "openstack-dev")
        ),
        ("hosts verify local", "cannot be reached "),
        ("simulate health node-0 --gpu 0", "has never been started; run `gpuform local start`"),
    ],
)
def test_a_cluster_that_is_not_there_is_a_failure(run: CliRunner, command: str, message: str) -> None:
    result = run.invoke(app, command.split())
    assert result.exit_code == 1
    assert re.match(rf"failed: (cluster|control plane) of [\w-]+:? {message}", result.stderr)


def test_what_lies_beside_a_rendering_is_told_and_left(run: CliRunner, tmp_path: Path) -> None:
    again = ["render", "local", "-o", str(tmp_path)]
    assert "other files" not in run.invoke(app, again).stdout
    others = [tmp_path / f"{number}.yaml" for number in range(5)]
    for other in others:
        other.touch()
    message = "5, from an earlier rendering or another source, such as 0.yaml, 1.yaml, 2.yaml, 3.yaml\n"
    assert f"other files in these folders: {message}" in run.invoke(app, again).stdout
    assert all(other.exists() for other in others)


def test_a_rendering_for_flux_names_its_folder_in_the_repository(run: CliRunner, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    folder = tmp_path / "clusters/dev"
    result = run.invoke(app, ["render", "aws-dev", "--gitops", "flux", "-o", str(folder)])
    assert result.exit_code == 0, result.output
    assert "path: ./clusters/dev/gpu-operator\n" in (folder / "flux.yaml").read_text()
    assert (folder / "gpu-operator/gpu-operator.yaml").is_file()
    assert result.stdout.splitlines()[1:3] == [
        "not in these files, but done by `gpuform up aws-dev --only nodes,layouts`:",
        "- the cluster itself, and its guards against losses",
    ]


@pytest.mark.parametrize("command", ["up", "start", "stop", "env"])
@pytest.mark.parametrize("below", ["", "/x"])
def test_a_state_that_cannot_be_a_folder_is_bad_input(
    run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, below: str
) -> None:
    (tmp_path / "file").write_text("kept")
    monkeypatch.setenv("GPUFORM_STATE", f"{tmp_path}/file{below}")
    result = run.invoke(app, ["local", command])
    if command == "stop" and below:
        assert result.exit_code == 0  # stopping nothing is fine
    else:
        file = f"{tmp_path}/file is" if below else "is"
        assert (result.exit_code, result.stderr) == (2, f"error: {tmp_path}/file{below}: {file} {FOLDER}\n")
    assert (tmp_path / "file").read_text() == "kept"


def test_any_other_failed_system_call_is_a_line_and_no_traceback(run: CliRunner, tmp_path: Path) -> None:
    (tmp_path / "out" / "nodes.yaml").mkdir(parents=True)
    result = run.invoke(app, ["render", "local", "-o", f"{tmp_path}/out"])
    assert result.exit_code == 1
    assert result.stderr == f"failed: {tmp_path}/out/nodes.yaml: Is a directory\n"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionRefusedError(111, "it refuses"), "failed: ConnectionRefusedError: it refuses\n"),
        (BrokenPipeError(32, "Broken pipe"), ""),  # as in `gpuform gpus | head -1`
    ],
)
def test_a_failed_system_call_without_a_file(
    run: CliRunner, monkeypatch: pytest.MonkeyPatch, error: OSError, message: str
) -> None:
    monkeypatch.setattr("gpuform.cli.machine.check_machine", Mock(side_effect=error))
    assert run.invoke(app, ["doctor"]).stderr == message


def test_a_control_plane_that_does_not_answer_is_a_failure(run: CliRunner, tmp_path: Path) -> None:
    config = kubeconfig({"server": "http://127.0.0.1:9"}, {"token": "t"})
    (tmp_path / "state").mkdir()
    (tmp_path / "state/kubeconfig").write_text(yaml.safe_dump(config))
    for command, message in {
        "simulate health node-0 --gpu 0": "the embedded control plane: does not answer.*; see `gpuform loc",
        "status local": "cluster of local: cannot be reached.*; start it with `gpuform local start`",
    }.items():
        result = run.invoke(app, command.split())
        assert result.exit_code == 1
        assert re.search(message, result.stderr)


def test_of_a_destroyed_stack_no_data_stays_and_nothing_can_be_started(run: CliRunner) -> None:
    assert run.invoke(app, ["local", "stop"]).stdout == "stopped; there is no data\n"
    failed = run.invoke(app, ["drift", "local"])
    assert failed.exit_code == 1
    assert (
        failed.stderr == "failed: stack local: has no resources to compare; create them: `gpuform up local`\n"
    )


BROKEN_FILES = {
    "render bad -o out": "Pulumi.bad.yaml:2:2: expected ',' or ']', but got ':'; correct the YAML there",
    "status bin": "error: Pulumi.bin.yaml: is not UTF-8 text; save it as UTF-8",
    "plan aws-dev": "error: prices/us-east-1.json: is not a price list",
    "whatif aws-dev --trace {0}/t.csv": "t.csv:1:1: header: ",
    "render aws-dev -o {0}/t.csv": "error: t.csv: is a file, not a folder",
}


@pytest.mark.parametrize(("command", "message"), BROKEN_FILES.items(), ids=BROKEN_FILES)
def test_an_error_names_a_file_of_the_project_from_the_working_directory(
    run: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    stack = Path("Pulumi.aws-dev.yaml").read_bytes()
    monkeypatch.chdir(tmp_path)
    Path("prices").mkdir()
    for name, content in {
        "Pulumi.yaml": b"name: gpuform\n",
        "Pulumi.aws-dev.yaml": stack,
        "Pulumi.bad.yaml": b"a: [1\nb: c\n",
        "Pulumi.bin.yaml": b"\xff\xfe",
        "t.csv": b"a\n",
    }.items():
        Path(name).write_bytes(content)
    if command.startswith("plan"):
        Path("prices/us-east-1.json").write_text("{")
    result = run.invoke(app, command.format(tmp_path).split())
    assert result.exit_code == 2
    assert result.stderr.startswith(message)
