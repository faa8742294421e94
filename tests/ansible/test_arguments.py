"""Every variable of a role is declared, described and used."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.generate import flat

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[2]
ROLES = sorted(folder for folder in (ROOT / "ansible/roles").iterdir() if folder.is_dir())
BESIDE = ("gpuform_",)  # of the environment, not of a role


def declared(role: Path) -> dict[str, Any]:
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]
    assert set(specs) == {"main"}
    options: dict[str, Any] = specs["main"]["options"]
    return options


def text_of(role: Path, *folders: str) -> str:
    files = [file for name in folders for file in sorted((role / name).rglob("*")) if file.is_file()]
    return "\n".join(file.read_text() for file in files)


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_what_a_role_uses_is_declared(role: Path) -> None:
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


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_what_is_declared_is_used(role: Path) -> None:
    text = text_of(role, "tasks", "handlers", "templates", "vars", "defaults")
    unused = [name for name in declared(role) if not re.search(rf"(?<!\w){name}(?!\w)", text)]
    playbooks = "\n".join(file.read_text() for file in (ROOT / "ansible/playbooks").rglob("*.yml"))
    python = "\n".join(file.read_text() for file in (ROOT / "gpuform/hosts").glob("*.py"))
    assert [name for name in unused if name not in playbooks + python or not name.startswith(BESIDE)] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_defaults_are_declared_and_only_once(role: Path) -> None:
    file = role / "defaults/main.yml"
    defaults = yaml.safe_load(file.read_text()) if file.exists() else {}
    options = declared(role)
    assert set(defaults) <= set(options)
    assert [name for name in defaults if {"default", "required"} & set(options[name])] == []


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_everything_declared_is_described(role: Path) -> None:
    spec = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    assert spec["short_description"]
    assert spec["description"]
    for name, option in flat(spec["options"]):
        assert option.get("description", "").endswith("."), name
        assert option.get("type"), name


def test_each_role_that_changes_a_host_refuses_an_unknown_system() -> None:
    checked = {role.name for role in ROLES if "supported_platform" in text_of(role, "meta")}
    assert {role.name for role in ROLES} - checked == {"signed_repository", "validate_inventory"}
