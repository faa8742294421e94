"""What is written below ansible/: ansible-lint's production profile, and the variables of each role."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate import flat

ROOT = Path(__file__).parents[2]
ANSIBLE = ROOT / "ansible"
FILES = sorted(file for file in ANSIBLE.rglob("*.y*ml") if file.is_file())


@pytest.mark.nightly
@pytest.mark.tools
def test_everything_passes_the_production_profile(tmp_path: Path) -> None:
    tools = Path(sys.executable).parent
    done = subprocess.run(
        [str(tools / "ansible-lint"), "--offline", "--strict", "--nocolor", "--profile", "production", "."],
        cwd=ANSIBLE,
        env={
            **os.environ,
            "PATH": f"{tools}:{os.environ['PATH']}",
            "ANSIBLE_HOME": str(tmp_path),
            "XDG_CACHE_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    processed = re.search(r"0 failure\(s\), 0 warning\(s\) in (\d+) files", done.stderr + done.stdout)
    assert processed
    assert int(processed[1]) >= len(FILES)
    assert "'production' was required, and it passed" in done.stderr + done.stdout


@pytest.mark.unit
def test_no_rule_is_skipped_and_no_file_left_out() -> None:
    config = yaml.safe_load((ANSIBLE / ".ansible-lint").read_text())
    assert config == {"profile": "production", "offline": True, "strict": True}
    assert not list(ANSIBLE.rglob(".ansible-lint-ignore"))
    for file in FILES:
        text = file.read_text()
        assert "noqa" not in text, file
        assert "skip_ansible_lint" not in text, file


TASKS = [file for file in FILES if {"tasks", "handlers", "playbooks"} & set(file.parts)]


@pytest.mark.unit
@pytest.mark.parametrize("file", TASKS, ids=lambda file: str(file.relative_to(ANSIBLE)))
def test_only_modules_of_ansible_core_are_used(file: Path) -> None:
    """A machine that reaches only package registries has no collections."""
    used = re.findall(r"^ *(?:- )?([a-z_]+\.[a-z_]+)\.[a-z_]+:", file.read_text(), re.MULTILINE)
    assert set(used) <= {"ansible.builtin"}


ROLES = sorted(folder for folder in (ANSIBLE / "roles").iterdir() if folder.is_dir())
BESIDE = ("gpuform_",)  # of the environment, not of a role


def declared(role: Path) -> dict[str, Any]:
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    assert set(specs) == {"main"}
    options: dict[str, Any] = specs["main"]["options"]
    return options


def text_of(role: Path, *folders: str) -> str:
    files = [file for name in folders for file in sorted((role / name).rglob("*")) if file.is_file()]
    return "\n".join(file.read_text() for file in files)


@pytest.mark.unit
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_declares_the_variables_that_it_uses(role: Path) -> None:
    text = text_of(role, "tasks", "handlers", "templates", "vars", "defaults")
    others = [other.name for other in ROLES if other != role and other.name.startswith(role.name)]
    used = set(re.findall(rf"(?<![\w.]){role.name}_\w+", text))
    used = {name for name in used if not any(name.startswith(f"{other}_") for other in others)}
    assert used - set(declared(role)) - facts(role) == set()


def facts(role: Path) -> set[str]:
    files = [file for name in ("tasks", "handlers") for file in (role / name).glob("*.yml")]
    return {
        name for file in files for task in tasks_in(yaml.safe_load(file.read_text())) for name in set_by(task)
    }


def tasks_in(found: Any) -> list[dict[str, Any]]:
    tasks = [task for task in found or [] if isinstance(task, dict)]
    inner = [
        part for task in tasks for key in ("block", "rescue", "always") for part in tasks_in(task.get(key))
    ]
    return tasks + inner


def set_by(task: dict[str, Any]) -> set[str]:
    return set(task.get("ansible.builtin.set_fact", {})) | {task.get("register", "")}


@pytest.mark.unit
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_uses_the_variables_that_it_declares(role: Path) -> None:
    text = text_of(role, "tasks", "handlers", "templates", "vars", "defaults")
    unused = [name for name in declared(role) if not re.search(rf"(?<!\w){name}(?!\w)", text)]
    playbooks = "\n".join(file.read_text() for file in (ANSIBLE / "playbooks").rglob("*.yml"))
    python = "\n".join(file.read_text() for file in (ROOT / "gpuform/hosts").glob("*.py"))
    assert [name for name in unused if name not in playbooks + python or not name.startswith(BESIDE)] == []


@pytest.mark.unit
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_declared_and_only_once(role: Path) -> None:
    file = role / "defaults/main.yml"
    defaults = yaml.safe_load(file.read_text()) if file.exists() else {}
    options = declared(role)
    assert set(defaults) <= set(options)
    assert [name for name in defaults if {"default", "required"} & set(options[name])] == []


@pytest.mark.unit
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_describes_the_variables_that_it_declares(role: Path) -> None:
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    assert spec["short_description"]
    assert spec["description"]
    for name, option in flat(spec["options"]):
        assert option.get("description", "").endswith("."), name
        assert option.get("type"), name


@pytest.mark.unit
def test_each_role_that_changes_a_host_refuses_an_unknown_system() -> None:
    checked = {role.name for role in ROLES if "supported_platform" in text_of(role, "meta")}
    assert {role.name for role in ROLES} - checked == {"signed_repository", "validate_inventory"}
