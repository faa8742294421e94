"""The project of a command: where it is found, what it gets from the installation, and who may write it."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuform import INSTALLATION
from gpuform.checkout import writable
from gpuform.checkout.errors import InputError
from gpuform.checkout.paths import Paths
from gpuform.cli import local
from gpuform.cli.main import app
from gpuform.engine.backend import project_name
from gpuform.stack.project import program_files, write

pytestmark = pytest.mark.unit
OURS = "from gpuform.program import run\n\nrun()\n"


def project(folder: Path, declared: str = "name: gpus\nruntime: python\n", main: str = ".") -> Path:
    (folder / main).mkdir(parents=True, exist_ok=True)
    (folder / "Pulumi.yaml").write_text(declared)
    (folder / main / "__main__.py").write_text(OURS)
    return folder


@pytest.mark.parametrize("main", [".", "infra"])
def test_a_project_of_any_name_is_found_from_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, main: str
) -> None:
    root = project(tmp_path / "mine", f'name: "mine"\nruntime: python\nmain: {main}/\n', main)
    (root / "deep" / "er").mkdir(parents=True)
    (root / "deep" / "Pulumi.yaml").write_text("name: another\nruntime: go\n")
    monkeypatch.chdir(root / "deep" / "er")
    found = Paths.here("prod")
    assert (found.root, found.state, found.stack) == (root, root / ".gpuform", "prod")
    assert (found.installation, found.prices) == (INSTALLATION, root / "prices")


def test_a_checkout_is_its_own_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_text("name: gpuform\nruntime: python\nmain: infra/\n")
    (tmp_path / "infra" / "incluster").mkdir(parents=True)
    assert Paths.here().installation == tmp_path
    assert Paths.here().prices == tmp_path / "infra" / "prices"


@pytest.mark.parametrize("program", ["import pulumi\n", "import gpuform_tools.program\n", "", b"\xff"])
def test_outside_of_a_project_a_command_says_where_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str | bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Pulumi.yaml").write_bytes(b"name: other\n\xff")
    (tmp_path / "__main__.py").write_bytes(program if isinstance(program, bytes) else program.encode())
    for words in (
        ["status"],
        ["up", "local"],
        ["render", "local", "-o", "x"],
        ["init", "a"],
        ["local", "up"],
    ):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2
        assert done.stderr == (
            f"error: {tmp_path}: no Pulumi.yaml of a gpuform project here or above; "
            "`cd` into a project, or write one: `gpuform new DIR`\n"
        )
    assert CliRunner().invoke(app, ["toolchain", "list"]).exit_code == 0
    assert sorted(file.name for file in tmp_path.iterdir()) == ["Pulumi.yaml", "__main__.py"]


def test_local_up_makes_a_project_of_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(local, "update", lambda stack, **options: made.append(stack))
    folder = tmp_path / "my gpus"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert CliRunner().invoke(app, ["local", "up", "prod"]).exit_code == 2
    first, second = (CliRunner().invoke(app, ["local", "up"]) for _ in range(2))
    wrote = "wrote Pulumi.yaml, Pulumi.local.yaml, __main__.py: a project with the stack local\n"
    assert (first.exit_code, first.stdout, second.stdout) == (0, wrote, "")
    assert made == ["local", "local"]
    assert (Paths.here().root, project_name(folder)) == (folder, "my-gpus")
    declared = (INSTALLATION / "Pulumi.local.yaml").read_text()
    assert declared.endswith(f"#\n{(folder / 'Pulumi.local.yaml').read_text()}")


@pytest.mark.parametrize(
    ("folder", "name"), [("7", "7"), ("a.b_c-D", "a.b_c-D"), ("ä b", "--b"), ("yes", "yes")]
)
def test_a_project_has_the_name_of_its_folder(tmp_path: Path, folder: str, name: str) -> None:
    (tmp_path / folder).mkdir()
    write(tmp_path / folder, program_files(tmp_path / folder, "local"))
    assert project_name(tmp_path / folder) == name


def test_git_ignores_a_state_unless_a_person_decided_otherwise(tmp_path: Path) -> None:
    ignored = tmp_path / "a" / "state" / ".gitignore"
    writable.make_state(ignored.parent)
    assert ignored.read_text() == "*\n"
    ignored.write_text("")
    writable.make_state(ignored.parent)
    assert ignored.read_text() == ""


def test_a_state_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    file = writable.version_file(tmp_path)
    file.parent.mkdir()
    for written in ("", "0.0.9", version("gpuform"), "not a version"):
        file.write_text(written)
        writable.require_state(tmp_path)
    file.write_text("10.2.0")
    with pytest.raises(InputError) as refused:
        writable.require_state(tmp_path)
    assert str(refused.value) == (
        f"{file}: gpuform 10.2.0 has written this state, and this is gpuform {version('gpuform')}; install "
        "gpuform 10.2.0 or a newer one"
    )
