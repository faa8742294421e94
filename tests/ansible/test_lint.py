"""ansible-lint's production profile over everything below ansible/, without exceptions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.tools

ANSIBLE = Path(__file__).parents[2] / "ansible"
FILES = sorted(file for file in ANSIBLE.rglob("*.y*ml") if file.is_file())


@pytest.mark.nightly
def test_all_of_it_passes_the_production_profile(tmp_path: Path) -> None:
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


def test_no_rule_is_skipped_and_no_file_left_out() -> None:
    config = yaml.safe_load((ANSIBLE / ".ansible-lint").read_text())
    assert config == {"profile": "production", "offline": True, "strict": True}
    assert not list(ANSIBLE.rglob(".ansible-lint-ignore"))
    for file in FILES:
        text = file.read_text()
        assert "noqa" not in text, file
        assert "skip_ansible_lint" not in text, file


TASKS = [file for file in FILES if {"tasks", "handlers", "playbooks"} & set(file.parts)]


@pytest.mark.parametrize("file", TASKS, ids=lambda file: str(file.relative_to(ANSIBLE)))
def test_only_modules_of_ansible_core_are_used(file: Path) -> None:
    """A machine that reaches only package registries has no collections."""
    used = re.findall(r"^ *(?:- )?([a-z_]+\.[a-z_]+)\.[a-z_]+:", file.read_text(), re.MULTILINE)
    assert set(used) <= {"ansible.builtin"}
