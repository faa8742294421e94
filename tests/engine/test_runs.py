"""Runs of the real engine: what they do, print and refuse."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuform.checkout.paths import Paths
from gpuform.cli.main import app
from gpuform.engine import Engine, EngineFailure, Event, Message, Step
from gpuform.stack import preflight
from gpuform.stack.preflight.check import Finding
from lab.toolchain import Toolchain
from tests.build.aws_stacks import ROOT
from tests.engine.conftest import THREE_RESOURCES, Project, aws_checkout
from tests.tiers import nightly_but

pytestmark = pytest.mark.engine


def test_up_creates_then_changes_nothing_then_destroy_deletes(project: Project) -> None:
    first = project.engine.up()
    assert first.changes == {"create": 3}
    assert {(step.op, step.name) for step in first.steps if step.is_resource} == {
        ("create", name) for name in "123"
    }
    assert {step.name for step in first.steps if step.is_component} == {"tried-local", "part"}
    assert first.changed
    created = sorted(line for line in project.said if line.startswith("created"))
    assert created == [f"created   pulumi:index:Stash {name}" for name in "123"]
    second = project.engine.up()
    assert second.changes == {"same": 3}
    assert not second.changed
    assert second.steps == ()
    gone = project.engine.destroy()
    assert gone.changes == {"delete": 3}
    assert not project.engine.export()["deployment"].get("resources")


def test_preview_plans_and_does_nothing(project: Project) -> None:
    planned = project.engine.preview()
    assert planned.changes == {"create": 3}
    assert {step.phase for step in planned.steps} == {"planned"}
    assert "create    pulumi:index:Stash 1" in project.said
    assert not project.engine.export()["deployment"].get("resources")


def test_configuration_reaches_the_program_and_secrets_are_encrypted(project: Project) -> None:
    project.program("""
        import pulumi
        config = pulumi.Config()
        pulumi.export("colour", config.require("colour"))
        pulumi.export("list", config.require_object("list"))
        pulumi.export("hush", pulumi.Output.secret("not for the state file"))
    """)
    project.stack_file("config:\n  tried:colour: blue\n  tried:list: [{a: 1}, {a: 2}]\n")
    project.engine.up()
    assert project.engine.outputs() == {"colour": "blue", "list": [{"a": 1}, {"a": 2}], "hush": "[secret]"}
    assert project.engine.outputs(show_secrets=True)["hush"] == "not for the state file"
    assert "not for the state file" not in json.dumps(project.engine.export())
    for file in project.paths.state.rglob("*"):
        assert not file.is_file() or b"not for the state file" not in file.read_bytes(), file


def test_a_program_imports_the_packages_of_its_own_checkout(project: Project) -> None:
    """As for the base of a preview, which is in another checkout."""
    (project.paths.root / "infra" / "incluster").mkdir(parents=True)  # which a checkout has
    components = project.paths.root / "components"
    components.mkdir()
    (components / "__init__.py").touch()
    (components / "mark.py").write_text("WHERE = __file__\n")
    project.program("import pulumi; from components.mark import WHERE; pulumi.export('where', WHERE)")
    project.engine.up()
    assert project.engine.outputs() == {"where": str(components / "mark.py")}


@pytest.mark.nightly
def test_configuration_larger_than_an_environment_variable(project: Project) -> None:
    project.program("""
        import pulumi
        pulumi.export("length", len(pulumi.Config().require("long")))
    """)
    project.stack_file(f"config:\n  tried:long: {'x' * 300_000}\n")
    project.engine.up()
    assert project.engine.outputs() == {"length": 300_000}


def test_an_environment_that_no_variable_holds_reaches_the_program_and_stops_no_plugin(
    project: Project,
) -> None:
    """The engine gives a plugin the configuration as PULUMI_CONFIG (pulumi, provider_plugin.go)."""
    file = project.paths.root / "Pulumi.yaml"
    plugin = {"providers": [{"name": "gpuform", "path": str(ROOT / "gpuform/provider/own")}]}
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), "plugins": plugin}))
    project.program("""
        import json
        from pathlib import Path
        import pulumi
        declared = json.loads(Path(pulumi.Config("gpuform").require("environment-file")).read_text())
        assert (len(declared["name"]), declared["version"]) == (300_000, "1.36")
        assert pulumi.Config().require("a") == "b"
        layout = {"kubeconfig": "missing", "selector": "a=b", "config": "c", "offers": {"nvidia.com/gpu": 1}}
        pulumi.CustomResource("gpuform:nodes:MigLayout", "m", layout)
    """)
    environment = f"{{name: {'x' * 300_000}, version: '1.36'}}"
    project.stack_file(f"config:\n  tried:a: b\n  gpuform:environment: {environment}\n")
    assert project.engine.preview().changes == {"create": 1}


@pytest.mark.nightly
def test_the_stack_file_is_read_anew_and_never_written(project: Project) -> None:
    project.program("import pulumi; pulumi.export('colour', pulumi.Config().require('colour'))")
    project.engine.up()
    file = project.stack_file("# a comment of mine\nconfig:\n  tried:colour: green\n")
    project.engine.up()
    assert project.engine.outputs() == {"colour": "green"}
    assert file.read_text() == "# a comment of mine\nconfig:\n  tried:colour: green\n"
    there = {path.name for path in project.paths.root.iterdir()}
    assert there == {".gpuform", "Pulumi.local.yaml", "Pulumi.yaml", "infra"}


@pytest.mark.nightly
def test_events_come_while_the_run_works(project: Project) -> None:
    project.program(THREE_RESOURCES + "\nprint('said by the program')\n")
    events: list[Event] = []
    project.engine.up(on_event=events.append)
    assert any(isinstance(event, Step) and event.phase == "started" for event in events)
    assert Message("info", "said by the program") in events
    assert project.said == [line for line in project.said if line.startswith("gpuform: ")]


@pytest.mark.parametrize(
    ("source", "reason"),
    nightly_but(
        "error",
        {
            "error": ("raise ValueError('boom')", "ValueError: boom"),
            "run error": ("import pulumi\nraise pulumi.RunError('a: is wrong; use b')", "a: is wrong; use b"),
            "import": ("import not_a_module", "ModuleNotFoundError: No module named 'not_a_module'"),
            "exit": ("raise SystemExit(7)", "Program exited with code 7"),
            "syntax": ("def broken(:", "SyntaxError: invalid syntax"),
        },
    ),
)
def test_a_program_that_fails_says_why_once(project: Project, source: str, reason: str) -> None:
    project.program(source)
    with pytest.raises(EngineFailure, match="pulumi up of stack local: failed") as caught:
        project.engine.up()
    assert reason in str(caught.value)
    said = "\n".join(project.said)
    assert said.count(reason) == 1
    assert "lab/offline/language" not in said
    assert not any(resource["type"] == "pulumi:index:Stash" for resource in _resources(project))


def _resources(project: Project) -> list[dict[str, str]]:
    return list(project.engine.export()["deployment"].get("resources") or [])


VIRTUALENV = "name: tried\nmain: infra/\nruntime: {name: python, options: {virtualenv: nowhere}}\n"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("infra/__main__.py", None, r"no program to run: .*infra/__main__\.py does not exist"),
        ("Pulumi.local.yaml", "config: [\n", "invalid YAML file: yaml: line 1"),
        ("Pulumi.yaml", VIRTUALENV,
         r"nowhere, named by the 'virtualenv' option in Pulumi.yaml.* create it with 'python3 -m venv"),
    ],
)  # fmt: skip
def test_a_checkout_that_cannot_run(project: Project, file: str, text: str | None, said: str) -> None:
    path = project.paths.root / file
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(EngineFailure, match=f"(?s){said}"):
        project.engine.up()


PACK = """
from pulumi_policy import EnforcementLevel, PolicyPack, ResourceValidationPolicy, StackValidationPolicy

def no_second(args, report):
    if args.name == "{name}":
        report(f"{{args.name}} is one too many")

PolicyPack("parts", policies=[
    ResourceValidationPolicy(
        name="one-part", description="There is one part.", validate=no_second,
        enforcement_level=EnforcementLevel.{level},
    ),
])
"""


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "PulumiPolicy.yaml").write_text("runtime: python\nversion: 0.0.1\n")
    return folder


def test_a_mandatory_policy_blocks_preview_and_up(project: Project, pack: Path) -> None:
    (pack / "__main__.py").write_text(PACK.format(name="2", level="MANDATORY"))
    for operation in (project.engine.preview, project.engine.up):
        with pytest.raises(EngineFailure, match=r"policy parts/one-part: There is one part\.") as caught:
            operation(policy_packs=[pack])
        assert "2 is one too many" in "\n".join(caught.value.result.errors)
        (violation,) = caught.value.result.violations
        assert violation.mandatory
        assert violation.urn.endswith("::2")


@pytest.mark.parametrize(("name", "level", "mandatory"), [("2", "ADVISORY", [False]), ("4", "MANDATORY", [])])
def test_an_advisory_policy_or_one_that_holds_lets_the_run_pass(
    project: Project, pack: Path, name: str, level: str, mandatory: list[bool]
) -> None:
    (pack / "__main__.py").write_text(PACK.format(name=name, level=level))
    result = project.engine.up(policy_packs=[pack])
    assert [violation.mandatory for violation in result.violations] == mandatory
    assert result.changes == {"create": 3}


def test_a_pack_that_fails_to_load_is_shown(project: Project, pack: Path) -> None:
    (pack / "__main__.py").write_text("raise ValueError('no pack today')")
    with pytest.raises(EngineFailure):
        project.engine.preview(policy_packs=[pack])
    assert "ValueError: no pack today" in "\n".join(project.said)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = aws_checkout(tmp_path / "checkout")
    for name in [name for name in os.environ if name.startswith(("AWS_", "GPUFORM_STATE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.chdir(root)
    return root


def up(*words: str) -> Result:
    return CliRunner().invoke(app, ["up", "aws-dev", *words])


def test_a_failed_preflight_makes_nothing_and_a_skipped_or_passed_one_goes_on(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = up()
    assert refused.exit_code == 1, refused.output
    assert "preflight of stack aws-dev: 1 of " in refused.stderr
    assert not (checkout / ".gpuform").exists()  # not even a stack

    made = up("--skip-preflight")
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines()[-1].startswith("3 created in ")

    def fine(*_: Any, **__: Any) -> Iterator[Finding]:
        yield Finding("credentials", "PASS", "x")

    monkeypatch.setattr(preflight, "run_checks", fine)
    again = up()
    assert again.exit_code == 0, again.output
    told = again.stdout.splitlines()
    assert told[0] == "preflight of stack aws-dev: 1 of 1 checks passed, 0 failed"
    assert told[-2].startswith("3 unchanged in ")
    paths = Paths.here()
    assert len(Engine(paths, Toolchain(paths)).export("aws-dev")["deployment"]["resources"]) == 6
