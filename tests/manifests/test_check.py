"""``gpuform check``: what it reads, prints and writes, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuform.cli.main import app

pytestmark = pytest.mark.unit

WRONG = """\
apiVersion: v1
kind: Pod
metadata: {name: a} # mine
spec:
  nodeSelector: {gpuform.io/pool: v100}
  containers:
  - {name: c, image: "a:1", resources: {limits: {nvidia.com/gpu: 1}}}
"""


def check(*options: str, text: str | None = None) -> Result:
    return CliRunner().invoke(app, ["check", "local", *options], input=text)


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "pod.yaml").write_text(WRONG)
    (tmp_path / "values.yaml").write_text("image: a\n")
    return tmp_path


def test_findings_name_file_line_fact_and_remedy(wrong: Path) -> None:
    done = check("-f", str(wrong))
    assert done.exit_code == 1
    heading, finding, summary = done.stdout.splitlines()
    assert heading == f"{wrong / 'sub' / 'pod.yaml'}: Pod a"
    assert finding == (
        "  4:1: error: spec.tolerations: the nodes of pool v100 have the taint "
        "nvidia.com/gpu=true:NoSchedule; add a toleration (--fix does)"
    )
    assert summary == "1 object, 1 pod template with GPUs: 1 error, 0 warnings; --fix corrects 1"
    (found,) = json.loads(check("-f", str(wrong), "--json").stdout)["findings"]
    assert (found["line"], found["path"], found["fixable"]) == (4, "spec.tolerations", True)


def test_fix_writes_the_file_once(wrong: Path) -> None:
    file = wrong / "sub" / "pod.yaml"
    done = check("-f", str(wrong), "--fix")
    assert (done.exit_code, done.stderr) == (0, f"{file}: fixed\n")
    once = file.read_text()
    assert once.startswith(WRONG)
    assert yaml.safe_load(once)["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    again = check("-f", str(wrong), "--fix")
    assert (again.exit_code, again.stderr, file.read_text()) == (0, "", once)
    assert (wrong / "values.yaml").read_text() == "image: a\n"


def test_files_that_are_no_yaml_are_all_named_and_hide_no_finding_of_others(wrong: Path) -> None:
    for name in ("a.yaml", "z.yaml"):
        (wrong / name).write_text("kind: [")
    done = check("-f", str(wrong))
    assert (done.exit_code, "1 pod template with GPUs: 1 error" in done.stdout) == (2, True)
    assert [line.split(":")[:2] for line in done.stderr.splitlines()[:2]] == [
        [str(wrong / "a.yaml"), "1"],
        [str(wrong / "z.yaml"), "1"],
    ]
    assert check("-f", str(wrong), "--fix").exit_code == 2
    assert (wrong / "sub" / "pod.yaml").read_text() == WRONG


def test_of_a_folder_yaml_without_a_kind_is_that_of_another_program(wrong: Path) -> None:
    for name, text in {
        "mkdocs.yml": "emoji: !!python/name:material.emoji\n",
        "cloud.yaml": "Resources: {A: !Ref B}\n",
        "anchors.yaml": "a: 1\na: 2\n",
    }.items():
        (wrong / name).write_text(text)
        assert check("-f", str(wrong / name)).exit_code == 2, "named, it is read"
    done = check("-f", str(wrong))
    assert (done.exit_code, done.stderr) == (1, "")
    assert "1 pod template with GPUs: 1 error" in done.stdout


def test_of_a_folder_hidden_files_and_templates_of_charts_are_left_out(wrong: Path) -> None:
    chart = wrong / "chart"
    for file in (
        chart / "templates" / "a.yaml",
        chart / "files" / "d.yaml",
        wrong / ".git" / "b.yaml",
        wrong / ".c.yaml",
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{{- if .Values.a }}")
    (chart / "Chart.yaml").write_text("name: a\n")
    done = check("-f", str(wrong))
    assert (done.exit_code, "1 pod template with GPUs: 1 error" in done.stdout) == (1, True)
    assert done.stderr == (
        f"note: chart {chart} is not read: helm template {chart} | gpuform check STACK -f -\n"
    )


def test_standard_input_is_fixed_to_standard_output() -> None:
    done = check("-f", "-", "--fix", text=WRONG)
    assert done.exit_code == 0
    assert done.stdout.startswith(WRONG)
    assert "0 errors" in done.stderr
    assert check("-f", "-", text=done.stdout).exit_code == 0


def test_a_kind_that_is_not_known_is_found_by_its_path() -> None:
    pod = "{containers: [{ports: [], resources: {limits: {nvidia.com/gpu: 1}}}, main]}"
    text = f"kind: Foo\nspec: {{pod: [{pod}]}}\n"
    assert "0 pod templates" in check("-f", "-", text=text).stdout
    found = check("-f", "-", "--pod-path", "Foo=spec.pod.0", text=text)
    assert "spec.pod[0].tolerations" in found.stdout


@pytest.mark.parametrize(
    ("options", "text", "message"),
    [
        ((), None, "-f: is missing"),
        (("-f", "-", "--fix", "--json"), WRONG, "--json: standard output would have the manifest"),
        (("-f", "missing.yaml"), None, "missing.yaml: No such file or directory"),
        (("-f", "-"), "a: {{ .Values.b }}\nb: [", "it is a template and no YAML; render it first"),
        (("-f", "-"), "a: [", "-:1:"),
        (("-f", "-", "--pod-path", "Foo"), WRONG, "--pod-path: 'Foo' is not KIND=PATH"),
        (("-f", "-", "--pod-path", "Foo=spec"), WRONG, "--pod-path: no Foo has a pod spec there"),
        (("--explain", "v1000"), None, "--explain: no pool is named 'v1000'"),
    ],
)
def test_bad_input_exits_with_2(options: tuple[str, ...], text: str | None, message: str) -> None:
    done = check(*options, text=text)
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_what_a_pool_needs_is_accepted_as_it_is_printed() -> None:
    for pool in ("t4-shared", "a100-mig", "a100-7", "a100-whole", "v100"):
        printed = check("--explain", pool).stdout
        spec = yaml.safe_load(printed)["spec"]
        spec["containers"][0]["image"] = "a:1"
        done = check("-f", "-", text=yaml.safe_dump({"kind": "Pod", "spec": spec}))
        assert (done.exit_code, "1 pod template with GPUs: 0 errors" in done.stdout) == (0, True), printed
